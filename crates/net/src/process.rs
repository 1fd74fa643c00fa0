//! What a parent needs of the kernel to run the daemons as children.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel end the child with SIGTERM when its parent dies, however it dies.
///
/// The kernel takes the *thread* that spawns for the parent: spawn from one that lives as long as the
/// process, such as the main thread.
pub fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let set = move || {
        // SAFETY: `PR_SET_PDEATHSIG` takes a signal number and touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died between fork and prctl; then no signal will ever come.
        if std::os::unix::process::parent_id() != parent {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe));
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls prctl and getppid alone, both async-signal-safe,
    // and builds errors without allocating.
    unsafe { command.pre_exec(set) };
}

/// Asks a process to stop (SIGTERM). A process that is already gone is not an error.
///
/// # Errors
///
/// The kernel's reason, for instance that the process belongs to another user.
pub fn terminate(pid: u32) -> io::Result<()> {
    let Ok(pid) = libc::pid_t::try_from(pid) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    if pid == 0 {
        // 0 would mean this whole process group.
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: `kill` takes two integers and touches no memory.
    match unsafe { libc::kill(pid, libc::SIGTERM) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn terminate_ends_a_child_with_sigterm() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        terminate(child.id()).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn process_zero_is_refused() {
        assert_eq!(terminate(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_child_dies_with_the_thread_that_spawned_it() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60");
            die_with_parent(&mut command);
            command.spawn().unwrap()
        })
        .join()
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }
}
