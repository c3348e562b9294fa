//! Every engine through the same door: what runs, what is refused, and which library is taken.

mod cuda;
mod example;
mod library;
mod running;
mod wrong;
