//! argon-plan
