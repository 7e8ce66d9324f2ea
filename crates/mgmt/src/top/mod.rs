//! The view of `top`: rates out of two states, as lines, as CSV, as JSON and on a screen.
//!
//! ```text
//! two states --tab--> objects --rate--> rows --view (filter, order, columns)--+--> lines, CSV
//! states of a minute --minute--> sparklines ----------------------------------+--> screen
//!                                                             keys --> view
//! ```

mod column;
mod keys;
mod minute;
mod rate;
mod screen;
mod tab;
mod view;

pub use minute::Minute;
pub use rate::{Rate, rates};
pub use screen::Screen;
pub use tab::Tab;
pub use view::{View, csv_head, csv_line, json_line, lines};
