//! Results that a device brings later. Elsewhere they are there at once: whoever asks waits inside the driver. In a browser
//! nothing may wait, so what runs models is written as futures, and [`now`] is how the rest of the world calls them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::error::{Error, Result};

/// A result that is there, or a future of it. Whoever has it at once allocates nothing.
pub enum Pending<T> {
    /// `None` once it was given out.
    Ready(Option<Result<T>>),
    /// Under way.
    Later(Pin<Box<dyn Future<Output = Result<T>>>>),
}

impl<T> Pending<T> {
    /// A result that is there.
    pub fn ready(result: Result<T>) -> Self {
        Pending::Ready(Some(result))
    }

    /// Sets `work` going, as far as it goes without waiting.
    pub fn start(work: impl Future<Output = Result<T>> + 'static) -> Self {
        let mut work: Pin<Box<dyn Future<Output = Result<T>>>> = Box::pin(work);
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Pending::ready(result),
            Poll::Pending => Pending::Later(work),
        }
    }
}

impl<T: Unpin> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut *self {
            Pending::Ready(result) => result.take().map_or(Poll::Pending, Poll::Ready),
            Pending::Later(work) => work.as_mut().poll(context),
        }
    }
}

/// The result of `work`. Another thread that waits for the same device may be the one that brings it, so this one may
/// have to sleep for a moment.
///
/// # Errors
/// Those of `work`; in a browser [`Error::Unsupported`] if it has to wait.
pub fn now<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = pin!(work);
    // Nothing is allocated for what is there.
    if let Poll::Ready(result) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return result;
    }
    if cfg!(target_family = "wasm") {
        let hint = "nothing may wait there, so the functions that are `async` have to be called";
        return Err(Error::unsupported("waiting for a device", "a browser's GPU", hint));
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(result) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        thread::park();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_given_at_once() {
        assert_eq!(now(Pending::ready(Ok(3))).expect("there"), 3);
        assert_eq!(now(Pending::start(async { Ok(4) })).expect("there"), 4);
        let refused = now(Pending::<()>::start(async { Err(Error::Numeric("no".into())) }));
        assert_eq!(refused.expect_err("an error").to_string(), "no");
    }

    #[test]
    #[cfg(feature = "gpu")]
    fn what_another_thread_brings_is_waited_for() {
        let (sender, receiver) = futures_channel::oneshot::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::yield_now();
                sender.send(5).expect("somebody waits");
            });
            let result =
                now(Pending::start(async { receiver.await.map_err(|e| Error::Numeric(e.to_string())) }));
            assert_eq!(result.expect("sent"), 5);
        });
    }
}
