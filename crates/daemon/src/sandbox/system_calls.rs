//! System calls of a sandboxed daemon, enforced by seccomp.
//!
//! Lists name each call that the daemon and its C library (glibc or musl) make after the start, by
//! role. Another call fails with ENOSYS, as on a kernel that does not have it. A newer C library
//! then makes an older call, but EPERM would be an error to it. Operations of io_uring are not
//! system calls: the kernel checks them by Landlock and the rights of the user.
//!
//! Invariants
//!  Y1  A call outside of the list fails and does not end the process. The end of the daemon would
//!      cost hosts more than one refused operation. A call of another architecture ends it; the
//!      daemon has no code that makes one.
//!  Y2  No process starts: `clone` makes threads only, `execve` and `clone3` are refused. glibc
//!      makes a thread by `clone` when the kernel refuses `clone3`.
//!  Y3  No memory becomes code: a mapping is not writable and executable, and no mapping becomes
//!      executable later.

use std::collections::BTreeMap;

use mgmt::config::SystemCalls;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// The kernel's number of a call.
type Number = libc::c_long;

/// Of every processor; the crate `libc` has it for some only.
const FCHMODAT2: Number = 452;

/// The numbers of calls, by their names in the crate `libc`.
macro_rules! calls {
    ($($name:ident)*) => {
        &[$(libc::$name),*]
    };
}

/// Requests, and the events that end a wait of a thread.
const IO: &[Number] = calls! {
    SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_read SYS_readv SYS_pread64
    SYS_preadv SYS_preadv2 SYS_write SYS_writev SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_ioctl
    SYS_fcntl SYS_dup SYS_dup3 SYS_close SYS_pipe2 SYS_eventfd2 SYS_epoll_create1 SYS_epoll_ctl
    SYS_epoll_pwait SYS_epoll_pwait2 SYS_ppoll SYS_pselect6 SYS_inotify_init1 SYS_inotify_add_watch
    SYS_inotify_rm_watch
};

/// Images, state, history and configuration.
const FILES: &[Number] = calls! {
    SYS_openat SYS_openat2 SYS_lseek SYS_statx SYS_newfstatat SYS_fstat SYS_statfs SYS_fstatfs
    SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_umask SYS_mkdirat
    SYS_unlinkat SYS_renameat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_fchmod SYS_fchmodat
    SYS_fchown SYS_fchownat SYS_utimensat SYS_truncate SYS_ftruncate SYS_fallocate SYS_fadvise64
    SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_syncfs SYS_copy_file_range SYS_sendfile
    SYS_flock SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_setxattr SYS_fsetxattr SYS_listxattr
    SYS_flistxattr SYS_removexattr SYS_fremovexattr
};

/// Portals, buses, NBD servers, the API, names of hosts, and reports to systemd. `socket` has a
/// rule of its own.
const NETWORK: &[Number] = calls! {
    SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_shutdown
    SYS_getsockname SYS_getpeername SYS_getsockopt SYS_setsockopt SYS_sendto SYS_sendmsg
    SYS_sendmmsg SYS_recvfrom SYS_recvmsg SYS_recvmmsg
};

/// Memory. `mmap` and `mprotect` have rules of their own.
const MEMORY: &[Number] = calls! {
    SYS_brk SYS_munmap SYS_mremap SYS_madvise SYS_getrandom
};

/// Threads, clocks, signals, and the end of the process, which a panic may order. `clone` has a
/// rule of its own.
const THREADS: &[Number] = calls! {
    SYS_futex SYS_set_robust_list SYS_get_robust_list SYS_set_tid_address SYS_rseq SYS_membarrier
    SYS_gettid SYS_getcpu SYS_prctl SYS_sched_yield SYS_sched_getparam SYS_sched_getscheduler
    SYS_sched_getaffinity SYS_sched_setaffinity SYS_clock_gettime SYS_clock_getres
    SYS_clock_nanosleep SYS_gettimeofday SYS_nanosleep SYS_restart_syscall SYS_rt_sigaction
    SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sigaltstack SYS_tgkill SYS_tkill SYS_exit SYS_exit_group
};

/// Identity of the process and of the machine.
const IDENTITY: &[Number] = calls! {
    SYS_getpid SYS_getppid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getgroups SYS_getrusage
    SYS_prlimit64 SYS_sysinfo SYS_uname
};

/// Calls that only this processor has besides their successors, which the lists above name.
#[cfg(target_arch = "x86_64")]
const FORMER: &[Number] = calls! {
    SYS_open SYS_stat SYS_lstat SYS_access SYS_readlink SYS_mkdir SYS_rmdir SYS_unlink SYS_rename
    SYS_link SYS_symlink SYS_chmod SYS_chown SYS_lchown SYS_dup2 SYS_pipe SYS_poll SYS_select
    SYS_epoll_wait
};
#[cfg(not(target_arch = "x86_64"))]
const FORMER: &[Number] = &[];

/// Calls that are permitted with any argument.
const LISTS: [&[Number]; 8] = [IO, FILES, &[FCHMODAT2], NETWORK, MEMORY, THREADS, IDENTITY, FORMER];

/// Families of sockets: Unix, TCP, names of hosts and interfaces (netlink), Ethernet of AoE.
const FAMILIES: [libc::c_int; 5] =
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];

/// The filter as a program for the kernel.
pub(super) fn filter(refusal: SystemCalls) -> Result<BpfProgram, BackendError> {
    // An empty list of rules permits every argument.
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        LISTS.into_iter().flatten().map(|&number| (number, Vec::new())).collect();
    // The low half of an argument has all bits that are compared.
    let rule = |argument, op, value: libc::c_int| -> Result<SeccompRule, BackendError> {
        let low = SeccompCmpArgLen::Dword;
        SeccompRule::new(vec![SeccompCondition::new(argument, low, op, value as u64)?])
    };
    let without = |flag: libc::c_int| rule(2, SeccompCmpOp::MaskedEq(flag as u64), 0);
    let families = FAMILIES.map(|family| rule(0, SeccompCmpOp::Eq, family));
    rules.insert(libc::SYS_socket, families.into_iter().collect::<Result<_, _>>()?);
    let thread = libc::CLONE_THREAD;
    let only_threads = rule(0, SeccompCmpOp::MaskedEq(thread as u64), thread)?;
    rules.insert(libc::SYS_clone, vec![only_threads]);
    rules.insert(libc::SYS_mmap, vec![without(libc::PROT_EXEC)?, without(libc::PROT_WRITE)?]);
    rules.insert(libc::SYS_mprotect, vec![without(libc::PROT_EXEC)?]);
    let otherwise = match refusal {
        SystemCalls::Refuse => SeccompAction::Errno(libc::ENOSYS as u32),
        SystemCalls::Log => SeccompAction::Log,
    };
    let processor: TargetArch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, otherwise, SeccompAction::Allow, processor)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    /// Results of a thread that has entered the filter, which a thread's children inherit.
    fn within<T: Send + 'static>(
        refusal: SystemCalls,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let program = filter(refusal).expect("a program");
        let thread = std::thread::spawn(move || {
            seccompiler::apply_filter(&program).expect("a kernel with seccomp");
            work()
        });
        thread.join().expect("it ended well")
    }

    fn family(family: AddressFamily) -> Option<Errno> {
        socket(family, SocketType::STREAM, None).err()
    }

    /// Refusals of calls that no list has, without an effect where they are permitted.
    fn refusals() -> [Option<i32>; 3] {
        let mounted = rustix::mount::unmount("/none", rustix::mount::UnmountFlags::empty());
        let ran = Command::new("/bin/true").status();
        let errno = |error: Errno| error.raw_os_error();
        [
            mounted.err().map(errno),
            ran.err().and_then(|error| error.raw_os_error()),
            family(AddressFamily::BLUETOOTH).map(errno),
        ]
    }

    /// Y2.
    #[test]
    fn y1_y2_calls_outside_of_the_list_fail_and_the_thread_lives() {
        let found = within(SystemCalls::Refuse, refusals);
        assert_eq!(found, [Some(libc::ENOSYS); 3]);
    }

    #[test]
    fn logged_calls_are_carried_out() {
        let [mounted, ran, _] = within(SystemCalls::Log, refusals);
        assert_ne!(mounted, Some(libc::ENOSYS), "the kernel looked for the mount");
        assert_eq!(ran, None, "the program ran");
    }

    #[test]
    fn files_sockets_and_threads_are_permitted() {
        let path = std::env::temp_dir().join(format!("ashlar-calls-{}", std::process::id()));
        let own = path.clone();
        within(SystemCalls::Refuse, move || {
            fs::write(&own, "x").expect("a file");
            fs::rename(&own, own.with_extension("new")).expect("another name");
            fs::remove_file(own.with_extension("new")).expect("gone");
            UnixStream::pair().expect("sockets");
            assert_eq!(family(AddressFamily::INET), None);
            let thread = std::thread::Builder::new().name("child".to_owned()).spawn(|| 7);
            assert_eq!(thread.expect("a thread").join().expect("its result"), 7);
        });
        assert!(!path.exists());
    }

    #[test]
    fn no_call_is_listed_twice() {
        let mut all = LISTS.concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for own in [libc::SYS_socket, libc::SYS_clone, libc::SYS_mmap, libc::SYS_mprotect] {
            assert!(!all.contains(&own), "call {own} has a rule of its own");
        }
    }
}
