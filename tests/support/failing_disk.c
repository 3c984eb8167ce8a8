/*
 * A disk that fails: preloaded into a process, writes to the files below FAIL_ROOT and their syncs
 * end with EIO while the file FAIL_FLAG exists.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int descriptor) {
    char link[64], path[PATH_MAX];
    const char *flag = getenv("FAIL_FLAG"), *root = getenv("FAIL_ROOT");
    if (!flag || !root || access(flag, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, root, strlen(root)) != 0) return 0;
    errno = EIO;
    return 1;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int d, const void *data, size_t size) { REAL(write); return fails(d) ? -1 : real(d, data, size); }
ssize_t writev(int d, const struct iovec *v, int n) { REAL(writev); return fails(d) ? -1 : real(d, v, n); }
ssize_t pwrite(int d, const void *p, size_t n, off_t at) { REAL(pwrite); return fails(d) ? -1 : real(d, p, n, at); }
ssize_t pwrite64(int d, const void *p, size_t n, off_t at) { REAL(pwrite64); return fails(d) ? -1 : real(d, p, n, at); }
ssize_t pwritev(int d, const struct iovec *v, int n, off_t at) { REAL(pwritev); return fails(d) ? -1 : real(d, v, n, at); }
int fsync(int d) { REAL(fsync); return fails(d) ? -1 : real(d); }
int fdatasync(int d) { REAL(fdatasync); return fails(d) ? -1 : real(d); }
