//! The command line: one file and one function a command.

pub mod inspect;
