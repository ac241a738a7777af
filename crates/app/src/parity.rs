//! `argon parity`: devices beside the reference, and beside numbers that others computed.

mod directory;
pub mod kernels;
mod model;
pub mod oracle;
mod report;
mod routing;
mod trial;
mod verdict;
