//! What the tests of products share: random weights, and a product with its float64 definition.

pub mod product;
pub mod weights;
