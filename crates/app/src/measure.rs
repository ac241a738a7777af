//! What `argon bench` and `argon run --profile` have in common: times, routings and their pictures, and where a prompt's time goes.

pub mod layout;
pub mod load;
pub mod pictures;
pub mod profile;
pub mod routing;
pub mod times;
