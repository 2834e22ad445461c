/* A layer between a process and its files, and its memory: LD_PRELOAD it, and one call of thousands fails.
 *
 * It counts the calls that concern files below some directories, of the driver and of all other Python processes, in a
 * page that all of them share (HERON_FAULTY_FILES names its file; `faulty_files.py` writes it). The call whose number
 * is asked for fails with an errno, transfers less than it was asked to, kills its process, or leaves that without
 * memory. Calls are counted, and nothing is timed: a number is a place in the program.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FDS = 4096, SHORT = -1, KILL = -2, LIMIT = -3, NO_MEMORY = -4, KILL_JVM = -5 };

struct control {
    char prefix[2][512];
    char what[1024]; /* the call that was made to fail */
    int64_t at, repeat, extra; /* which call, how many from there on, and of what the action needs */
    int64_t calls[2]; /* of the driver, of tasks */
    int32_t driver, role, action, armed, fired, fired_pid, traced;
};

static struct control *control;
static char *names[FDS];
static int trace_fd = -1;
static long allocations_left = -1, allocations_fail;

__attribute__((constructor)) static void begin(void) {
    char exe[PATH_MAX] = "", trace[PATH_MAX];
    const char *path = getenv("HERON_FAULTY_FILES");
    if (!path || readlink("/proc/self/exe", exe, sizeof exe - 1) < 0 || !strstr(exe, "python")) return;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return;
    const char *driver = getenv("HERON_FAULTY_DRIVER");
    void *page = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (page == MAP_FAILED) return;
    snprintf(trace, sizeof trace, "%s.trace", path);
    trace_fd = syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    control = page;
    if (driver) control->driver = getpid(), unsetenv("HERON_FAULTY_DRIVER");
}

static int concerns(const char *path) {
    if (!control || !path) return 0;
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(control->prefix[i]);
        if (length && !strncmp(path, control->prefix[i], length)) return 1;
    }
    return 0;
}

static void leave_little_memory(long extra) {
    struct rlimit limit;
    char text[64] = "";
    long pages = 0;
    int fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY, 0);
    if (fd < 0) return;
    if (syscall(SYS_read, fd, text, sizeof text - 1) > 0) pages = atol(text);
    syscall(SYS_close, fd);
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages * sysconf(_SC_PAGESIZE) + extra;
    setrlimit(RLIMIT_AS, &limit);
}

/* A worker's parent is the daemon of all workers, and the parent of that the JVM of the executor. */
static void kill_jvm(void) {
    char path[64], text[512] = "", *rest;
    snprintf(path, sizeof path, "/proc/%d/stat", getppid());
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0), jvm = 0;
    if (fd < 0) return;
    if (syscall(SYS_read, fd, text, sizeof text - 1) > 0 && (rest = strrchr(text, ')')))
        jvm = atoi(rest + 4);
    syscall(SYS_close, fd);
    if (jvm > 1) syscall(SYS_kill, jvm, SIGKILL);
}

/* Counts a call: 0 to make it, SHORT to transfer less, or an errno to fail with. */
static int counted(const char *op, const char *path, int transfers) {
    if (!concerns(path)) return 0;
    int role = getpid() != control->driver;
    int64_t number = __atomic_add_fetch(&control->calls[role], 1, __ATOMIC_SEQ_CST);
    char line[1200];
    int length = snprintf(line, sizeof line, "%s %s %s\n", role ? "task" : "driver", op, path);
    if (control->traced && trace_fd >= 0 && length > 0) {
        if (syscall(SYS_write, trace_fd, line, length) < 0) { /* a trace that lacks a line is no fault */ }
    }
    int action = control->action;
    if (!control->armed || role != control->role) return 0;
    if (number < control->at || number >= control->at + control->repeat) return 0;
    if (action == SHORT && !transfers) {
        __atomic_add_fetch(&control->at, 1, __ATOMIC_SEQ_CST); /* the next one, perhaps */
        return 0;
    }
    if (!__atomic_fetch_add(&control->fired, 1, __ATOMIC_SEQ_CST)) {
        snprintf(control->what, sizeof control->what, "%.*s", length - 1, line);
        control->fired_pid = getpid();
    }
    if (action == KILL) syscall(SYS_kill, getpid(), SIGKILL);
    if (action == KILL_JVM) kill_jvm();
    if (action == LIMIT) leave_little_memory(control->extra);
    if (action == NO_MEMORY) allocations_fail = control->repeat, allocations_left = control->extra;
    return action <= LIMIT ? 0 : action;
}

static const char *named(int fd) { return control && fd >= 0 && fd < FDS ? names[fd] : NULL; }

static void opened(int fd, const char *path) {
    if (fd >= 0 && fd < FDS && concerns(path)) {
        free(names[fd]);
        names[fd] = strdup(path);
    }
}

static const char *joined(int dir, const char *path, char *buffer) {
    if (!path || path[0] == '/' || dir == AT_FDCWD) return path;
    if (!named(dir)) return NULL;
    snprintf(buffer, PATH_MAX, "%s/%s", named(dir), path);
    return buffer;
}

#define REAL(name) \
    ({ \
        if (!real_##name) real_##name = dlsym(RTLD_NEXT, #name); \
        (__typeof__(name) *)real_##name; \
    })
#define FAIL(value, op, path) \
    do { \
        int error_ = counted(op, path, 0); \
        if (error_ > 0) { errno = error_; return value; } \
    } while (0)

#define OPEN(name) \
    static void *real_##name; \
    int name(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, int); va_end(rest); \
        FAIL(-1, flags & O_CREAT ? "create" : "open", path); \
        int fd = REAL(name)(path, flags, mode); \
        opened(fd, path); \
        return fd; \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    static void *real_##name; \
    int name(int dir, const char *path, int flags, ...) { \
        char buffer[PATH_MAX]; \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, int); va_end(rest); \
        const char *whole = joined(dir, path, buffer); \
        FAIL(-1, flags & O_CREAT ? "create" : "open", whole); \
        int fd = REAL(name)(dir, path, flags, mode); \
        opened(fd, whole); \
        return fd; \
    }
OPENAT(openat)
OPENAT(openat64)

static void *real_close;
int close(int fd) {
    if (fd >= 0 && fd < FDS && names[fd]) free(names[fd]), names[fd] = NULL;
    return REAL(close)(fd);
}

#define TRANSFER(name, op, parameters, arguments) \
    static void *real_##name; \
    ssize_t name parameters { \
        int error = counted(op, named(fd), 1); \
        if (error > 0) { errno = error; return -1; } \
        if (error == SHORT && count > 1) count /= 2; \
        return REAL(name) arguments; \
    }
TRANSFER(read, "read", (int fd, void *data, size_t count), (fd, data, count))
TRANSFER(write, "write", (int fd, const void *data, size_t count), (fd, data, count))
TRANSFER(pread, "read", (int fd, void *data, size_t count, off_t at), (fd, data, count, at))
TRANSFER(pread64, "read", (int fd, void *data, size_t count, off64_t at), (fd, data, count, at))
TRANSFER(pwrite, "write", (int fd, const void *data, size_t count, off_t at), (fd, data, count, at))
TRANSFER(pwrite64, "write", (int fd, const void *data, size_t count, off64_t at), (fd, data, count, at))

#define BY_FD(name, op, parameters, arguments) \
    static void *real_##name; \
    int name parameters { FAIL(-1, op, named(fd)); return REAL(name) arguments; }
BY_FD(fsync, "fsync", (int fd), (fd))
BY_FD(fdatasync, "fsync", (int fd), (fd))
BY_FD(flock, "flock", (int fd, int operation), (fd, operation))
BY_FD(fstat, "fstat", (int fd, struct stat *found), (fd, found))
BY_FD(fstat64, "fstat", (int fd, struct stat64 *found), (fd, found))
BY_FD(ftruncate64, "truncate", (int fd, off64_t length), (fd, length))

#define BY_PATH(name, op, parameters, arguments) \
    static void *real_##name; \
    int name parameters { FAIL(-1, op, path); return REAL(name) arguments; }
BY_PATH(rename, "rename", (const char *path, const char *new), (path, new))
BY_PATH(link, "link", (const char *path, const char *new), (path, new))
BY_PATH(unlink, "unlink", (const char *path), (path))
BY_PATH(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode))
BY_PATH(rmdir, "rmdir", (const char *path), (path))
BY_PATH(stat, "stat", (const char *path, struct stat *found), (path, found))
BY_PATH(stat64, "stat", (const char *path, struct stat64 *found), (path, found))
BY_PATH(lstat, "stat", (const char *path, struct stat *found), (path, found))
BY_PATH(lstat64, "stat", (const char *path, struct stat64 *found), (path, found))

#define BY_DIRECTORY(name, op, parameters, arguments) \
    static void *real_##name; \
    int name parameters { \
        char buffer[PATH_MAX]; \
        FAIL(-1, op, joined(dir, path, buffer)); \
        return REAL(name) arguments; \
    }
BY_DIRECTORY(unlinkat, "unlink", (int dir, const char *path, int flags), (dir, path, flags))
BY_DIRECTORY(mkdirat, "mkdir", (int dir, const char *path, mode_t mode), (dir, path, mode))
BY_DIRECTORY(fstatat, "stat", (int dir, const char *path, struct stat *found, int flags), (dir, path, found, flags))
BY_DIRECTORY(fstatat64, "stat", (int dir, const char *path, struct stat64 *found, int flags), (dir, path, found, flags))
BY_DIRECTORY(renameat, "rename", (int dir, const char *path, int to, const char *new), (dir, path, to, new))
BY_DIRECTORY(utimensat, "utime", (int dir, const char *path, const struct timespec times[2], int flags),
             (dir, path, times, flags))

static void *real_opendir, *real_readdir, *real_readdir64;
DIR *opendir(const char *path) {
    FAIL(NULL, "opendir", path);
    DIR *found = REAL(opendir)(path);
    if (found) opened(dirfd(found), path);
    return found;
}
struct dirent *readdir(DIR *of) { FAIL(NULL, "readdir", named(dirfd(of))); return REAL(readdir)(of); }
struct dirent64 *readdir64(DIR *of) { FAIL(NULL, "readdir", named(dirfd(of))); return REAL(readdir64)(of); }

/* Memory: from the chosen call on, the n-th allocation of a page or more fails. */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static int no_memory(size_t size) {
    if (allocations_left < 0 || size < 4096) return 0;
    if (!control->armed) { allocations_left = -1; return 0; }
    if (allocations_left > 0) { allocations_left--; return 0; }
    if (allocations_fail-- > 0) { errno = ENOMEM; return 1; }
    allocations_left = -1;
    return 0;
}

void *malloc(size_t size) { return no_memory(size) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return no_memory(count * size) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return no_memory(size) ? NULL : __libc_realloc(old, size); }
int posix_memalign(void **made, size_t alignment, size_t size) {
    if (no_memory(size)) return ENOMEM;
    *made = __libc_memalign(alignment, size);
    return *made ? 0 : ENOMEM;
}
