//! The `hadal` program.
fn main() {}
