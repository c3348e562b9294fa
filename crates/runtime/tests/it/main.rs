//! All engines through the same interface: results, errors, and the choice of a library.

mod cuda;
mod example;
mod gradients;
mod library;
mod running;
mod together;
mod wrong;
