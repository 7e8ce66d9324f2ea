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

/// Requests, and the events that end a wait of a thread.
const IO: &[Number] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_ioctl,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_close,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
];

/// Images, state, history and configuration.
const FILES: &[Number] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_lseek,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_umask,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_flock,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_setxattr,
    libc::SYS_fsetxattr,
    libc::SYS_listxattr,
    libc::SYS_flistxattr,
    libc::SYS_removexattr,
    libc::SYS_fremovexattr,
];

/// Portals, buses, NBD servers, the API, names of hosts, and reports to systemd. `socket` has a
/// rule of its own.
const NETWORK: &[Number] = &[
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
];

/// Memory. `mmap` and `mprotect` have rules of their own.
const MEMORY: &[Number] =
    &[libc::SYS_brk, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_getrandom];

/// Threads, clocks, signals, and the end of the process, which a panic may order. `clone` has a
/// rule of its own.
const THREADS: &[Number] = &[
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_gettid,
    libc::SYS_getcpu,
    libc::SYS_prctl,
    libc::SYS_sched_yield,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Identity of the process and of the machine.
const IDENTITY: &[Number] = &[
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Calls that only this processor has besides their successors, which the lists above name.
#[cfg(target_arch = "x86_64")]
const FORMER: &[Number] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
];
#[cfg(not(target_arch = "x86_64"))]
const FORMER: &[Number] = &[];

/// Families of sockets: Unix, TCP, names of hosts and interfaces (netlink), Ethernet of AoE.
const FAMILIES: [libc::c_int; 5] =
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];

/// The filter as a program for the kernel.
pub(super) fn filter(refusal: SystemCalls) -> Result<BpfProgram, BackendError> {
    let lists = [IO, FILES, NETWORK, MEMORY, THREADS, IDENTITY, FORMER];
    // An empty list of rules permits every argument.
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        lists.into_iter().flatten().map(|&number| (number, Vec::new())).collect();
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
        let mut all = [IO, FILES, NETWORK, MEMORY, THREADS, IDENTITY, FORMER].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for own in [libc::SYS_socket, libc::SYS_clone, libc::SYS_mmap, libc::SYS_mprotect] {
            assert!(!all.contains(&own), "call {own} has a rule of its own");
        }
    }
}
