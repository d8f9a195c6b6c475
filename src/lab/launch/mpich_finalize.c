// Preloaded into MPICH's ranks: see hydra.rs for what is wrong without it.
//
// Before the first endpoint is closed, all ranks meet, in two steps. Up to the first, they keep UCX
// going, as others may still wait for what this one has sent. From the second on, none of them is
// in user code any more or answers by itself: each closes its own endpoints first.
//
// The way to meet is that of MPICH's own barrier there: PMI-1, of which PMI_FD is the socket.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_WORKERS 64

static void *workers[MAX_WORKERS];
static int workers_count;

static int barrier(int fd, unsigned (*progress)(void *worker))
{
    static const char enter[] = "cmd=barrier_in\n";
    char c = 0;

    if (write(fd, enter, strlen(enter)) != (ssize_t)strlen(enter))
        return -1;
    while (c != '\n') {
        struct pollfd answer = {.fd = fd, .events = POLLIN};
        if (progress && poll(&answer, 1, 0) == 0) {
            for (int i = 0; i < workers_count; i++)
                progress(workers[i]);
            continue;
        }
        ssize_t got = read(fd, &c, 1);
        if (got == 0 || (got < 0 && errno != EINTR))
            return -1;
    }
    return 0;
}

int ucp_worker_create(void *context, const void *params, void **worker)
{
    int (*next)(void *, const void *, void **) = dlsym(RTLD_NEXT, "ucp_worker_create");
    int status = next(context, params, worker);

    if (status == 0 && workers_count < MAX_WORKERS)
        workers[workers_count++] = *worker;
    return status;
}

void *ucp_disconnect_nb(void *endpoint)
{
    void *(*next)(void *) = dlsym(RTLD_NEXT, "ucp_disconnect_nb");
    const char *fd = getenv("PMI_FD");

    if (workers_count > 0 && fd) {
        if (barrier(atoi(fd), dlsym(RTLD_NEXT, "ucp_worker_progress")) == 0)
            barrier(atoi(fd), NULL);
    }
    workers_count = 0;
    return next(endpoint);
}
