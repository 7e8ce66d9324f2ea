//! The view of `top`: rates out of two states, as lines, as CSV and on a screen.

mod rate;
mod screen;
mod view;

pub use rate::{Rate, rates};
pub use screen::Screen;
pub use view::{View, csv_head, csv_line, lines};
