//! The `argon` command.
fn main() {}
