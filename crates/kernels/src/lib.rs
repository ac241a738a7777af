//! argon-kernels
