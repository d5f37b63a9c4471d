/* Counts the calls of this process that change files; ends it by SIGKILL before a given one, or stops it before each of
 * them, so that its parent can look at the files. Loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile long last = -1, counted = 0;
static volatile int armed = 0, stopping = 0;
static pthread_mutex_t one_by_one = PTHREAD_MUTEX_INITIALIZER;

void die_at(long call) { counted = 0; last = call; armed = 1; }
void stop_at_calls(void) { stopping = armed = 1; }
long calls(void) { return counted; }

static void step(void) {
    if (!armed) return;
    if (stopping) {
        pthread_mutex_lock(&one_by_one); /* calls of two threads are two stops */
        raise(SIGSTOP);                  /* of this thread: it stops here, and all others with it */
        pthread_mutex_unlock(&one_by_one);
        return;
    }
    long now = __atomic_fetch_add(&counted, 1, __ATOMIC_SEQ_CST);
    if (last >= 0 && now >= last) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
}

static void step_file(int handle) {
    struct stat about;
    if (armed && fstat(handle, &about) == 0 && (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode))) step();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CHANGES (O_CREAT | O_TRUNC)
#define MODE(flags) mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *path, int flags, ...) { MODE(flags) if (flags & CHANGES) step(); return REAL(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) if (flags & CHANGES) step(); return REAL(open64)(path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) if (flags & CHANGES) step(); return REAL(openat)(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) if (flags & CHANGES) step(); return REAL(openat64)(at, path, flags, mode); }
ssize_t write(int handle, const void *data, size_t size) { step_file(handle); return REAL(write)(handle, data, size); }
ssize_t pwrite(int handle, const void *data, size_t size, off_t at) { step_file(handle); return REAL(pwrite)(handle, data, size, at); }
ssize_t pwrite64(int handle, const void *data, size_t size, off64_t at) { step_file(handle); return REAL(pwrite64)(handle, data, size, at); }
ssize_t writev(int handle, const struct iovec *parts, int count) { step_file(handle); return REAL(writev)(handle, parts, count); }
int fsync(int handle) { step_file(handle); return REAL(fsync)(handle); }
int fdatasync(int handle) { step_file(handle); return REAL(fdatasync)(handle); }
int ftruncate(int handle, off_t size) { step_file(handle); return REAL(ftruncate)(handle, size); }
int ftruncate64(int handle, off64_t size) { step_file(handle); return REAL(ftruncate64)(handle, size); }
int rename(const char *from, const char *to) { step(); return REAL(rename)(from, to); }
int renameat(int one, const char *from, int two, const char *to) { step(); return REAL(renameat)(one, from, two, to); }
int renameat2(int one, const char *from, int two, const char *to, unsigned flags) { step(); return REAL(renameat2)(one, from, two, to, flags); }
int link(const char *from, const char *to) { step(); return REAL(link)(from, to); }
int linkat(int one, const char *from, int two, const char *to, int flags) { step(); return REAL(linkat)(one, from, two, to, flags); }
int symlink(const char *from, const char *to) { step(); return REAL(symlink)(from, to); }
int unlink(const char *path) { step(); return REAL(unlink)(path); }
int unlinkat(int at, const char *path, int flags) { step(); return REAL(unlinkat)(at, path, flags); }
int mkdir(const char *path, mode_t mode) { step(); return REAL(mkdir)(path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { step(); return REAL(mkdirat)(at, path, mode); }
int rmdir(const char *path) { step(); return REAL(rmdir)(path); }
