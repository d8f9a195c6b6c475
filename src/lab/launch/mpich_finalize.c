// Preloaded into MPICH's ranks: see hydra.rs for what is wrong without it.
//
// From the first endpoint that a rank closes to the end of its workers, it keeps UCX going while it
// reads from PMI (PMI-1, of which PMI_FD is the socket), as it does in the barrier that comes next:
// others may still have a question.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_WORKERS 64

static void *workers[MAX_WORKERS];
static int workers_count;
static int pmi = -1;
static unsigned (*progress)(void *worker);

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

    progress = dlsym(RTLD_NEXT, "ucp_worker_progress");
    if (fd && progress)
        pmi = atoi(fd);
    return next(endpoint);
}

void ucp_worker_destroy(void *worker)
{
    void (*next)(void *) = dlsym(RTLD_NEXT, "ucp_worker_destroy");

    workers_count = 0;
    next(worker);
}

ssize_t read(int fd, void *into, size_t bytes)
{
    static ssize_t (*next)(int, void *, size_t);

    if (!next)
        next = dlsym(RTLD_NEXT, "read");
    if (fd == pmi && fd >= 0) {
        struct pollfd answer = {.fd = fd, .events = POLLIN};
        while (workers_count > 0 && poll(&answer, 1, 0) == 0) {
            for (int i = 0; i < workers_count; i++)
                progress(workers[i]);
        }
    }
    return next(fd, into, bytes);
}
