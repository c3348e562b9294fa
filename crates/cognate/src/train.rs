//! Training: configuration files, the trainer, its events, and charts and tables of its logs.

mod chart;
mod grid_table;

pub use chart::{ChartAxis, chart, log_table};
pub use cognate_model::{DropoutRates, Loss};
pub use cognate_train::config::TrainingConfig;
pub use cognate_train::{
    Alone, Averaged, Beginning, Ending, Error, ErrorKind, Event, LeftOut, LogLine, Machine,
    Optimiser, Outcome, Progress, Ranks, Rule, Stretch, Trainer, Validation, read_log,
};
pub use grid_table::GridTable;
