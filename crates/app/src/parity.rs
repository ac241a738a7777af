//! `argon parity`: comparisons with numbers that others computed.

mod directory;
pub mod oracle;
mod routing;
mod trial;
mod verdict;
