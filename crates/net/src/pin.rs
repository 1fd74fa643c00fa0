//! One thread on one core.

use std::io;
use std::mem;

/// The cores this thread may run on, in ascending order; never empty.
///
/// This honors `taskset` and cpusets, which `/proc/cpuinfo` does not.
pub fn cores() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is a plain bit array, for which all zeroes is a valid (empty) value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the pointer and the size describe `set`, which outlives the call; 0 means this thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    if result != 0 {
        return (0..std::thread::available_parallelism().map_or(1, usize::from)).collect();
    }
    let capacity = 8 * size_of_val(&set);
    // SAFETY: `CPU_ISSET` reads bit `core` of `set`, and `core` stays below its capacity.
    (0..capacity).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Lets the calling thread run on `core` alone.
///
/// # Errors
///
/// The kernel's reason, for instance that a cpuset excludes the core. The thread then runs where it ran
/// before: report it and go on.
pub fn current_thread_to(core: usize) -> io::Result<()> {
    current_thread_to_any(&[core])
}

/// Lets the calling thread, and the threads and processes that it starts from now on, run on `cores` alone.
///
/// # Errors
///
/// Those of [`current_thread_to`].
pub fn current_thread_to_any(cores: &[usize]) -> io::Result<()> {
    // SAFETY: `cpu_set_t` is a plain bit array, for which all zeroes is a valid (empty) value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &core in cores {
        if core >= 8 * size_of_val(&set) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no core {core}")));
        }
        // SAFETY: `core` is below the capacity of `set`, checked above.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the pointer and the size describe `set`, which outlives the call; 0 means this thread.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts the calling thread, and what it starts from now on, into the real-time class (SCHED_RR) with `priority`
/// from 1 to 99, or back into the ordinary one with 0. For measuring beside other work; no daemon does so itself.
///
/// # Errors
///
/// The kernel's reason: mostly that the user may not (CAP_SYS_NICE, RLIMIT_RTPRIO).
pub fn current_thread_real_time(priority: u8) -> io::Result<()> {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_RR };
    let parameter = libc::sched_param { sched_priority: libc::c_int::from(priority) };
    // SAFETY: `parameter` outlives the call; 0 means this thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets how nice the calling thread, and what it starts from now on, is to the rest of the ordinary class: -20 takes most of
/// a core, 0 is usual. Unlike the real-time class, which the kernel stops for 50 ms of each second that it uses whole, it
/// suits a thread that spins.
///
/// # Errors
///
/// The kernel's reason: mostly that the user may not (CAP_SYS_NICE, RLIMIT_NICE).
pub fn current_thread_nice(nice: i8) -> io::Result<()> {
    // SAFETY: `setpriority` takes three integers and touches no memory; 0 means this thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, libc::c_int::from(nice)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_on_that_core_alone() {
        let core = *cores().last().unwrap();
        std::thread::spawn(move || {
            current_thread_to(core).unwrap();
            assert_eq!(cores(), [core]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_core_that_does_not_exist_is_an_error() {
        assert!(current_thread_to(1023).is_err());
        assert!(current_thread_to(usize::MAX).is_err());
    }
}
