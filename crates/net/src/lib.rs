//! UDP batches, pinned workers and deadlines; the one address of unsafe code.
