//! Ctrl-C: stops the answer that is being generated; otherwise, or pressed again, it ends the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hadal::engine::Interrupt;

/// The exit code of a program that Ctrl-C ended: 128 + SIGINT.
const EXIT_CODE: i32 = 130;

/// The answer that Ctrl-C would stop.
static CURRENT: Mutex<Option<Interrupt>> = Mutex::new(None);

/// The error of a command that Ctrl-C stopped. It is not told: whoever pressed it knows.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Starts to listen, if that was not done by a command that this one is made of.
pub fn listen() -> anyhow::Result<()> {
    static LISTENS: AtomicBool = AtomicBool::new(false);
    if LISTENS.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    ctrlc::set_handler(|| match current().take() {
        Some(interrupt) => interrupt.stop(),
        None => std::process::exit(EXIT_CODE),
    })?;
    Ok(())
}

/// Ctrl-C stops this answer as long as the guard lives.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    pub fn new(interrupt: Interrupt) -> Self {
        *current() = Some(interrupt);
        Guard(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        *current() = None;
    }
}

fn current() -> MutexGuard<'static, Option<Interrupt>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}
