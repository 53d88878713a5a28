//! Results that a device brings later. Elsewhere they are there at once: whoever asks waits inside the driver. In a browser
//! nothing may wait, so what runs models is written as futures, and [`now`] is how the rest of the world calls them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

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

/// The result of `work`, which does not have to wait: everywhere but with a GPU in a browser.
///
/// # Errors
/// Those of `work`; [`Error::Unsupported`] if it has to wait.
pub fn now<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => {
            let hint = "nothing may wait there, so the functions that are `async` have to be called";
            Err(Error::unsupported("waiting for a device", "a browser's GPU", hint))
        }
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
    fn what_has_to_wait_is_refused_by_those_who_cannot() {
        let error = now(Pending::<()>::start(std::future::pending())).expect_err("never there");
        assert!(error.to_string().contains("async"), "{error}");
    }
}
