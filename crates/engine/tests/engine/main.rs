//! The engine against other engines, against itself, and against broken files.

mod chunks;
mod edit;
mod finite;
mod fixture;
mod keys;
mod npy;
mod oracle;
mod parts;
mod router;
mod saved;
mod session;
mod stages;
mod tensors;
mod variants;
