/* Makes one call of the system fail, or ends the process there; loaded before the C library (LD_PRELOAD).
 *
 * Only calls count that change, open, map or lock something below one folder, or ask for its free space: writing,
 * flushing, truncating, mapping, opening, renaming, removing, making folders; or, where reading fails, that open, map or
 * read a file. `fail_at` chooses the folder, the number of the call, its error, 0 for SIGKILL, whether reading fails, and
 * what fails from then on: 0 nothing, 1 all that needs room, 2 all changes. Until then random bytes are fixed, so that
 * names and contents are those of other runs of the command that fail.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define NONE (1L << 40) /* number of a call that no command has */

static char folder[PATH_MAX];
static atomic_long left = -1;
static int number_of_error;
static char hit[PATH_MAX + 64];
static long first;
static int reads;
static int stays;
static atomic_int failing; /* what fails from now on, see `stays` */
static char renamed[4096];

void fail_at(const char *below, long call, int error, int reading, int staying) {
    snprintf(folder, sizeof folder, "%s", below);
    number_of_error = error;
    first = call;
    reads = reading;
    stays = staying;
    atomic_store(&left, call);
}

/* The call that failed, "" if there was none. */
const char *failed_call(void) { return hit; }

/* The calls that there would have to be yet before one fails. */
long calls_left(void) { return atomic_load(&left); }

static int is_below(const char *path) {
    size_t length = strlen(folder);
    return length && strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* The numbers of the renamings, each after a space. */
const char *renamings(void) { return renamed; }

static int is_one_of(const char *name, const char *names) { return strstr(names, name) != NULL; }

static int is_over(void) { return atomic_load(&left) < 0 && !atomic_load(&failing); }

static int fails(const char *name, const char *path) {
    if (is_over() || !is_below(path)) return 0;
    if (atomic_load(&left) < 0) {
        int again = is_one_of(name, atomic_load(&failing) == 1 ? "write truncate create rename mkdir" :
                                                                 "write truncate create rename mkdir remove");
        if (again) errno = number_of_error;
        return again;
    }
    if (!is_one_of(name, "open create map") && is_one_of(name, "read") != reads) return 0;
    long until = atomic_fetch_sub(&left, 1);
    size_t length = strlen(renamed);
    if (strcmp(name, "rename") == 0) snprintf(renamed + length, sizeof renamed - length, " %ld", first - until);
    if (until != 0) return 0;
    snprintf(hit, sizeof hit, "%s %s", name, path + strlen(folder));
    if (number_of_error == 0) kill(getpid(), SIGKILL);
    atomic_store(&failing, stays);
    errno = number_of_error;
    return 1;
}

static void path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

static int fails_file(const char *name, int file) {
    char path[PATH_MAX];
    int before = errno;
    if (is_over()) return 0;
    path_of(file, path);
    errno = before;
    return fails(name, path);
}

static int fails_at(const char *name, int directory, const char *path) {
    char whole[2 * PATH_MAX + 2], start[PATH_MAX] = "";
    if (is_over()) return 0;
    if (path[0] == '/') return fails(name, path);
    if (directory == AT_FDCWD) {
        if (!getcwd(start, sizeof start)) return 0;
    } else {
        path_of(directory, start);
    }
    snprintf(whole, sizeof whole, "%s/%s", start, path);
    return fails(name, whole);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OPENED(flags) ((flags) & (O_CREAT | O_TRUNC) || ((flags) & O_TMPFILE) == O_TMPFILE ? "create" : "open")
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return fails_at(OPENED(flags), AT_FDCWD, path) ? -1 : NEXT(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags)
    return fails_at(OPENED(flags), AT_FDCWD, path) ? -1 : NEXT(open64)(path, flags, mode);
}
int openat(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return fails_at(OPENED(flags), directory, path) ? -1 : NEXT(openat)(directory, path, flags, mode);
}
int openat64(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return fails_at(OPENED(flags), directory, path) ? -1 : NEXT(openat64)(directory, path, flags, mode);
}
FILE *fopen(const char *path, const char *how) {
    return fails_at(how[0] == 'r' ? "open" : "create", AT_FDCWD, path) ? NULL : NEXT(fopen)(path, how);
}
FILE *fopen64(const char *path, const char *how) {
    return fails_at(how[0] == 'r' ? "open" : "create", AT_FDCWD, path) ? NULL : NEXT(fopen64)(path, how);
}
ssize_t write(int file, const void *bytes, size_t size) {
    return fails_file("write", file) ? -1 : NEXT(write)(file, bytes, size);
}
ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    return fails_file("write", file) ? -1 : NEXT(pwrite)(file, bytes, size, at);
}
ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) {
    return fails_file("write", file) ? -1 : NEXT(pwrite64)(file, bytes, size, at);
}
ssize_t writev(int file, const struct iovec *parts, int number) {
    return fails_file("write", file) ? -1 : NEXT(writev)(file, parts, number);
}
ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *at, size_t size, unsigned flags) {
    return fails_file("write", to) ? -1 : NEXT(copy_file_range)(from, start, to, at, size, flags);
}
ssize_t sendfile(int to, int from, off_t *start, size_t size);
ssize_t sendfile(int to, int from, off_t *start, size_t size) {
    return fails_file("write", to) ? -1 : NEXT(sendfile)(to, from, start, size);
}
ssize_t read(int file, void *bytes, size_t size) {
    return fails_file("read", file) ? -1 : NEXT(read)(file, bytes, size);
}
ssize_t pread(int file, void *bytes, size_t size, off_t at) {
    return fails_file("read", file) ? -1 : NEXT(pread)(file, bytes, size, at);
}
ssize_t pread64(int file, void *bytes, size_t size, off64_t at) {
    return fails_file("read", file) ? -1 : NEXT(pread64)(file, bytes, size, at);
}
ssize_t preadv(int file, const struct iovec *parts, int number, off_t at) {
    return fails_file("read", file) ? -1 : NEXT(preadv)(file, parts, number, at);
}
ssize_t preadv64(int file, const struct iovec *parts, int number, off64_t at) {
    return fails_file("read", file) ? -1 : NEXT(preadv64)(file, parts, number, at);
}
int fsync(int file) { return fails_file("fsync", file) ? -1 : NEXT(fsync)(file); }
int fdatasync(int file) { return fails_file("fsync", file) ? -1 : NEXT(fdatasync)(file); }
int ftruncate(int file, off_t size) { return fails_file("truncate", file) ? -1 : NEXT(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) { return fails_file("truncate", file) ? -1 : NEXT(ftruncate64)(file, size); }
int fallocate(int file, int mode, off_t at, off_t size) {
    return fails_file("truncate", file) ? -1 : NEXT(fallocate)(file, mode, at, size);
}
int posix_fallocate(int file, off_t at, off_t size) {
    return fails_file("truncate", file) ? number_of_error : NEXT(posix_fallocate)(file, at, size);
}
int truncate(const char *path, off_t size) {
    return fails_at("truncate", AT_FDCWD, path) ? -1 : NEXT(truncate)(path, size);
}
int truncate64(const char *path, off64_t size) {
    return fails_at("truncate", AT_FDCWD, path) ? -1 : NEXT(truncate64)(path, size);
}
int flock(int file, int how) { return fails_file("lock", file) ? -1 : NEXT(flock)(file, how); }
int statvfs(const char *path, struct statvfs *found) {
    return fails_at("space", AT_FDCWD, path) ? -1 : NEXT(statvfs)(path, found);
}
int unlink(const char *path) { return fails_at("remove", AT_FDCWD, path) ? -1 : NEXT(unlink)(path); }
int unlinkat(int directory, const char *path, int flags) {
    return fails_at("remove", directory, path) ? -1 : NEXT(unlinkat)(directory, path, flags);
}
int rmdir(const char *path) { return fails_at("remove", AT_FDCWD, path) ? -1 : NEXT(rmdir)(path); }
int rename(const char *from, const char *to) {
    return fails_at("rename", AT_FDCWD, to) ? -1 : NEXT(rename)(from, to);
}
int renameat(int here, const char *from, int there, const char *to) {
    return fails_at("rename", there, to) ? -1 : NEXT(renameat)(here, from, there, to);
}
int renameat2(int here, const char *from, int there, const char *to, unsigned flags) {
    return fails_at("rename", there, to) ? -1 : NEXT(renameat2)(here, from, there, to, flags);
}
int mkdir(const char *path, mode_t mode) { return fails_at("mkdir", AT_FDCWD, path) ? -1 : NEXT(mkdir)(path, mode); }
int mkdirat(int directory, const char *path, mode_t mode) {
    return fails_at("mkdir", directory, path) ? -1 : NEXT(mkdirat)(directory, path, mode);
}
void *mmap(void *address, size_t size, int protection, int flags, int file, off_t at) {
    if (file >= 0 && fails_file("map", file)) return MAP_FAILED;
    return NEXT(mmap)(address, size, protection, flags, file, at);
}
void *mmap64(void *address, size_t size, int protection, int flags, int file, off64_t at) {
    if (file >= 0 && fails_file("map", file)) return MAP_FAILED;
    return NEXT(mmap64)(address, size, protection, flags, file, at);
}
ssize_t getrandom(void *bytes, size_t size, unsigned flags) {
    static unsigned long drawn;
    if (atomic_load(&left) < 0 || first >= NONE) return NEXT(getrandom)(bytes, size, flags);
    for (size_t at = 0; at < size; at++) ((unsigned char *)bytes)[at] = (++drawn * 0x9E3779B97F4A7C15) >> 56;
    return size;
}
