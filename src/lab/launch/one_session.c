// Preloaded into the launchers and their daemons, not into the ranks: see one_session.rs.

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

// A launcher puts its child into a group, as the child does itself. If the child has gone on to its program by then
// the kernel says EACCES, and Open MPI writes a warning, though nothing is wrong.
int setpgid(pid_t process, pid_t group)
{
    long result = syscall(SYS_setpgid, process, group);

    return result == 0 || (process != 0 && errno == EACCES) ? 0 : -1;
}

pid_t setsid(void)
{
    return setpgid(0, 0) == 0 ? getpid() : -1;
}
