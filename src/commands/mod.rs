//! Door.
pub mod load;
