/*
 * What a process does to the files below one folder, in the order in which it does it: preloaded
 * into it, this writes one event per call to a file that is opened for appending, so that the order
 * of events is the order in the file, for all threads and processes.
 *
 *     RECORD_ROOT   the folder; files in it whose name ends in "-lock" are left out
 *     RECORD_MARKS  a file of which every write is recorded as a mark: what the process says itself
 *     RECORD_LOG    where the events go
 *
 * A write and a sync are recorded when they begin and when they end. Between the two the write may
 * have reached the disk or not, and the sync has not yet made anything durable. What cannot be
 * replayed is recorded as foreign.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    OPEN = 'O', WRITE = 'W', WRITTEN = 'w', SYNC = 'F', SYNCED = 'f', TRUNCATE = 'T', RENAME = 'R',
    UNLINK = 'U', MAKE_FOLDER = 'D', MARK = 'M', FOREIGN = 'X'
};
enum { CREATED = 1, WRITE_THROUGH = 2 };
enum { DESCRIPTORS = 1 << 16, MOST_PIECES = 1024 };

struct event {
    uint64_t operation; /* of a WRITE and its WRITTEN, of a SYNC and its SYNCED */
    uint64_t file;      /* as its OPEN called it */
    int64_t offset;
    uint32_t length;
    uint8_t kind;
    uint8_t flags;
    uint8_t unused[2];
};

struct file {
    uint64_t id; /* 0: not recorded */
    uint8_t flags;
    uint8_t marks;
};

static struct file files[DESCRIPTORS];
static char root[PATH_MAX], marks[PATH_MAX];
static size_t root_length;
static int events = -1;
static _Atomic uint64_t counter;

static uint64_t next_id(void) { return ((uint64_t)getpid() << 32) | (atomic_fetch_add(&counter, 1) + 1); }

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("RECORD_ROOT"), *log = getenv("RECORD_LOG"), *own = getenv("RECORD_MARKS");
    if (!folder || !log || !own) return;
    snprintf(root, sizeof root, "%s", folder);
    snprintf(marks, sizeof marks, "%s", own);
    root_length = strlen(root);
    events = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (events < 0) abort();
}

static void tell(struct event event, const struct iovec *pieces, int count) {
    struct iovec all[MOST_PIECES + 1];
    all[0] = (struct iovec){&event, sizeof event};
    memcpy(all + 1, pieces, (size_t)count * sizeof *pieces);
    ssize_t whole = (ssize_t)(sizeof event + event.length);
    if (syscall(SYS_writev, events, all, count + 1) != whole) abort();
}

static void tell_text(struct event event, const char *text) {
    struct iovec piece = {(void *)text, strlen(text)};
    event.length = (uint32_t)piece.iov_len;
    tell(event, &piece, 1);
}

static void tell_end(uint8_t kind, uint64_t operation, uint64_t file, int64_t result) {
    tell((struct event){.kind = kind, .operation = operation, .file = file, .offset = result}, NULL, 0);
}

static void foreign(const char *call) { tell_text((struct event){.kind = FOREIGN}, call); }

/* The path below the root, in whole; NULL: it is elsewhere, or a lock file. */
static const char *recorded(const char *path) {
    if (events < 0 || strncmp(path, root, root_length) != 0) return NULL;
    const char *rest = path + root_length;
    size_t length = strlen(rest);
    if (*rest != 0 && *rest != '/') return NULL;
    if (length >= 5 && strcmp(rest + length - 5, "-lock") == 0) return NULL;
    return *rest == '/' ? rest + 1 : rest;
}

static void absolute(int folder, const char *path, char *out) {
    char name[64], base[PATH_MAX];
    if (path[0] == '/') { snprintf(out, PATH_MAX, "%s", path); return; }
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) abort();
    } else {
        snprintf(name, sizeof name, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(name, base, sizeof base - 1);
        base[length < 0 ? 0 : length] = 0;
    }
    if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) abort();
}

static struct file *of(int descriptor) {
    if (events < 0 || descriptor < 0 || descriptor >= DESCRIPTORS) return NULL;
    struct file *file = &files[descriptor];
    return file->id || file->marks ? file : NULL;
}

static int open_recorded(int folder, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    if (events < 0) return (int)syscall(SYS_openat, folder, path, flags, mode);
    absolute(folder, path, full);
    const char *below = recorded(full);
    int is_new = below && (flags & O_CREAT) && faccessat(AT_FDCWD, full, F_OK, 0) != 0;
    int descriptor = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (descriptor < 0 || descriptor >= DESCRIPTORS) return descriptor;
    files[descriptor] = (struct file){0};
    if (strcmp(full, marks) == 0) files[descriptor].marks = 1;
    if (!below) return descriptor;
    int flag = (is_new ? CREATED : 0) | (flags & O_DSYNC ? WRITE_THROUGH : 0);
    struct file file = {next_id(), (uint8_t)flag, 0};
    files[descriptor] = file;
    tell_text((struct event){.kind = OPEN, .file = file.id, .flags = file.flags}, below);
    if ((flags & O_TRUNC) && !is_new) tell((struct event){.kind = TRUNCATE, .file = file.id}, NULL, 0);
    return descriptor;
}

#define OPENING(name)                                                                              \
    int name(const char *path, int flags, ...) {                                                   \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                    \
        va_end(rest);                                                                              \
        return open_recorded(AT_FDCWD, path, flags, mode);                                         \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name)                                                                           \
    int name(int folder, const char *path, int flags, ...) {                                       \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                    \
        va_end(rest);                                                                              \
        return open_recorded(folder, path, flags, mode);                                           \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

int close(int descriptor) {
    if (descriptor >= 0 && descriptor < DESCRIPTORS) files[descriptor] = (struct file){0};
    return (int)syscall(SYS_close, descriptor);
}

static uint64_t begin_write(struct file *file, int64_t offset, const struct iovec *pieces, int count) {
    if (count > MOST_PIECES) abort();
    struct event event = {.file = file->id, .offset = offset, .flags = file->flags};
    event.kind = file->marks ? MARK : WRITE;
    event.operation = next_id();
    for (int at = 0; at < count; at++) event.length += (uint32_t)pieces[at].iov_len;
    tell(event, pieces, count);
    return event.operation;
}

static ssize_t write_pieces(int descriptor, const struct iovec *pieces, int count, off_t offset) {
    int at_position = offset < 0;
    struct file *file = of(descriptor);
    uint64_t operation = 0;
    if (file) {
        int64_t where = at_position ? syscall(SYS_lseek, descriptor, 0, SEEK_CUR) : offset;
        operation = begin_write(file, where, pieces, count);
    }
    ssize_t result = at_position ? syscall(SYS_writev, descriptor, pieces, count)
                                 : syscall(SYS_pwritev, descriptor, pieces, count, offset, 0);
    int error = errno;
    if (file && !file->marks) tell_end(WRITTEN, operation, file->id, result);
    errno = error;
    return result;
}

ssize_t writev(int descriptor, const struct iovec *pieces, int count) {
    return write_pieces(descriptor, pieces, count, -1);
}
ssize_t write(int descriptor, const void *data, size_t length) {
    if (!of(descriptor)) return syscall(SYS_write, descriptor, data, length);
    struct iovec piece = {(void *)data, length};
    return write_pieces(descriptor, &piece, 1, -1);
}
ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset) {
    struct iovec piece = {(void *)data, length};
    return write_pieces(descriptor, &piece, 1, offset);
}
ssize_t pwrite64(int descriptor, const void *data, size_t length, off_t offset) {
    return pwrite(descriptor, data, length, offset);
}
ssize_t pwritev(int descriptor, const struct iovec *pieces, int count, off_t offset) {
    return write_pieces(descriptor, pieces, count, offset);
}
ssize_t pwritev64(int descriptor, const struct iovec *pieces, int count, off_t offset) {
    return write_pieces(descriptor, pieces, count, offset);
}
ssize_t pwritev2(int descriptor, const struct iovec *pieces, int count, off_t offset, int flags) {
    if (of(descriptor)) foreign("pwritev2");
    return syscall(SYS_pwritev2, descriptor, pieces, count, offset, 0, flags);
}

static int synced(int descriptor, long call) {
    struct file *file = of(descriptor);
    uint64_t operation = file ? next_id() : 0;
    if (file) tell((struct event){.kind = SYNC, .operation = operation, .file = file->id}, NULL, 0);
    int result = (int)syscall(call, descriptor);
    int error = errno;
    if (file) tell_end(SYNCED, operation, file->id, result);
    errno = error;
    return result;
}
int fsync(int descriptor) { return synced(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return synced(descriptor, SYS_fdatasync); }

int ftruncate(int descriptor, off_t length) {
    struct file *file = of(descriptor);
    int result = (int)syscall(SYS_ftruncate, descriptor, length);
    if (file && result == 0)
        tell((struct event){.kind = TRUNCATE, .file = file->id, .offset = length}, NULL, 0);
    return result;
}
int ftruncate64(int descriptor, off_t length) { return ftruncate(descriptor, length); }

static int renamed(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    char old[PATH_MAX], new[PATH_MAX], both[2 * PATH_MAX];
    int result = (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    if (result != 0 || events < 0) return result;
    absolute(from_folder, from, old);
    absolute(to_folder, to, new);
    const char *old_name = recorded(old), *new_name = recorded(new);
    if (!old_name && !new_name) return result;
    if (!old_name || !new_name || flags) foreign("rename across the folder's border");
    else {
        snprintf(both, sizeof both, "%s\n%s", old_name, new_name);
        tell_text((struct event){.kind = RENAME}, both);
    }
    return result;
}
int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return renamed(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    return renamed(from_folder, from, to_folder, to, flags);
}

static int named(uint8_t kind, int result, int folder, const char *path) {
    char full[PATH_MAX];
    if (result != 0 || events < 0) return result;
    absolute(folder, path, full);
    const char *below = recorded(full);
    if (below) tell_text((struct event){.kind = kind}, below);
    return result;
}
int unlinkat(int folder, const char *path, int flags) {
    return named(UNLINK, (int)syscall(SYS_unlinkat, folder, path, flags), folder, path);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int folder, const char *path, mode_t mode) {
    return named(MAKE_FOLDER, (int)syscall(SYS_mkdirat, folder, path, mode), folder, path);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    if ((protection & PROT_WRITE) && (flags & MAP_SHARED) && of(descriptor)) foreign("mmap for writing");
    return (void *)syscall(SYS_mmap, address, length, protection, flags, descriptor, offset);
}
void *mmap64(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    return mmap(address, length, protection, flags, descriptor, offset);
}

int fallocate(int descriptor, int mode, off_t offset, off_t length) {
    struct file *file = of(descriptor);
    struct stat now;
    if (file && mode) foreign("fallocate that is not to lengthen a file");
    int result = (int)syscall(SYS_fallocate, descriptor, mode, offset, length);
    if (file && result == 0 && fstat(descriptor, &now) == 0)
        tell((struct event){.kind = TRUNCATE, .file = file->id, .offset = now.st_size}, NULL, 0);
    return result;
}
int fallocate64(int descriptor, int mode, off_t offset, off_t length) {
    return fallocate(descriptor, mode, offset, length);
}
int posix_fallocate(int descriptor, off_t offset, off_t length) {
    return fallocate(descriptor, 0, offset, length) == 0 ? 0 : errno;
}
int posix_fallocate64(int descriptor, off_t offset, off_t length) {
    return posix_fallocate(descriptor, offset, length);
}

/* Not used on logs; a log that begins to must be noticed. */
ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t length, unsigned flags) {
    if (of(to)) foreign("copy_file_range");
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, length, flags);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t length) {
    if (of(to)) foreign("sendfile");
    return syscall(SYS_sendfile, to, from, offset, length);
}
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    if (events >= 0 && recorded(to)) foreign("link");
    return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
