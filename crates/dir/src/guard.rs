//! Where panics stop, over what a directory sent for one.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static CAUGHT: Cell<u64> = const { Cell::new(0) };
}

/// How many panics were stopped on this thread so far, for tests that want none.
pub fn caught() -> u64 {
    CAUGHT.get()
}

/// What `work` gives, or what it panicked over. Whoever lends it something must be able to go on with that in any
/// state.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        CAUGHT.set(CAUGHT.get() + 1);
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_words() {
        assert_eq!((guarded(|| 7), caught()), (Ok(7), 0));
        let n = 3;
        assert_eq!(guarded(|| panic!("as the test wants")), Err::<(), _>("as the test wants".to_owned()));
        assert_eq!(guarded(|| panic!("{n} times")), Err::<(), _>("3 times".to_owned()));
        assert_eq!(caught(), 2);
    }
}
