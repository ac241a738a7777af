//! argon-engine
