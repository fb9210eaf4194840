/* The progress counter of an application, for `assay reflect watch --progress FILE`.
 *
 *     struct assay_progress *progress = assay_progress_create("/dev/shm/my-server");
 *     ...
 *     assay_progress_finished(progress, 1);    // after each unit of work; progress may be NULL
 *
 * C11 or C++11 with GCC or Clang, on Linux. The layout of the page is that of crates/reflect/src/progress.rs:
 * 64 cache lines, the first with a mark and advice, each other one with the counts of some threads. */
#ifndef ASSAY_PROGRESS_H
#define ASSAY_PROGRESS_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_PROGRESS_MARK "assay.p1"
#define ASSAY_PROGRESS_SLOTS 63

/* Advice on a unit of work: it is not urgent; one alone may take the bandwidth of the memory; it may not wait
 * for admission. */
#define ASSAY_PROGRESS_BATCH 2u
#define ASSAY_PROGRESS_BANDWIDTH_BOUND 4u
#define ASSAY_PROGRESS_NEVER_QUEUED 8u

struct assay_progress_line {
    uint64_t finished;
    uint64_t failed;
    uint64_t unused[6];
};

struct assay_progress {
    char mark[8];
    uint64_t advice;
    char unit[48];
    struct assay_progress_line slots[ASSAY_PROGRESS_SLOTS];
};

/* Opens the counter of this application, and creates it if it does not exist. Counts continue where an earlier
 * run ended; its advice is removed. Returns NULL and sets errno if that fails, with EINVAL if the file is
 * something else. A symbolic link is not followed: others may have made it. It is never closed: the end of the
 * process does that. */
static inline struct assay_progress *assay_progress_create(const char *path)
{
    struct stat status;
    char mark[8] = {0};
    int is_other, error;
    void *page = MAP_FAILED;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0)
        return NULL;
    if (fstat(file, &status) < 0)
        goto out;
    if (status.st_size > 0 || !S_ISREG(status.st_mode)) {
        is_other = !S_ISREG(status.st_mode) || status.st_size != sizeof(struct assay_progress) ||
                   read(file, mark, sizeof mark) != sizeof mark ||
                   (memcmp(mark, ASSAY_PROGRESS_MARK, sizeof mark) != 0 && memcmp(mark, "\0\0\0\0\0\0\0", 8) != 0);
        if (is_other) {
            errno = EINVAL;
            goto out;
        }
    }
    if (ftruncate(file, sizeof(struct assay_progress)) < 0)
        goto out;
    page = mmap(NULL, sizeof(struct assay_progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) {
        memcpy(page, ASSAY_PROGRESS_MARK, sizeof mark);
        __atomic_store_n(&((struct assay_progress *)page)->advice, 0, __ATOMIC_SEQ_CST);
    }
out:
    error = errno;
    close(file);
    errno = error;
    return page == MAP_FAILED ? NULL : (struct assay_progress *)page;
}

/* The counts of the calling thread. */
static inline struct assay_progress_line *assay_progress_line(struct assay_progress *progress)
{
    static unsigned next;
    static __thread unsigned slot;
    if (slot == 0)
        slot = 1 + __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % ASSAY_PROGRESS_SLOTS;
    return &progress->slots[slot - 1];
}

/* Publishes what a unit of work is, in the singular, and advice on it: ASSAY_PROGRESS_BATCH | ..., or 0. A later
 * call replaces it. Returns -1 and sets errno to EINVAL if the name has more than 48 bytes, or the advice other
 * bits. */
static inline int assay_progress_advise(struct assay_progress *progress, const char *unit, unsigned advice)
{
    const unsigned known = ASSAY_PROGRESS_BATCH | ASSAY_PROGRESS_BANDWIDTH_BOUND | ASSAY_PROGRESS_NEVER_QUEUED;
    if (!unit || strlen(unit) > sizeof progress->unit || (advice & ~known)) {
        errno = EINVAL;
        return -1;
    }
    if (!progress)
        return 0;
    __atomic_store_n(&progress->advice, 0, __ATOMIC_SEQ_CST);
    memset(progress->unit, 0, sizeof progress->unit);
    memcpy(progress->unit, unit, strlen(unit));
    __atomic_store_n(&progress->advice, 1 | (uint64_t)advice, __ATOMIC_SEQ_CST);
    return 0;
}

/* Counts units of work that succeeded. */
static inline void assay_progress_finished(struct assay_progress *progress, uint64_t units)
{
    if (progress)
        __atomic_fetch_add(&assay_progress_line(progress)->finished, units, __ATOMIC_RELAXED);
}

/* Counts units of work that failed. */
static inline void assay_progress_failed(struct assay_progress *progress, uint64_t units)
{
    if (progress)
        __atomic_fetch_add(&assay_progress_line(progress)->failed, units, __ATOMIC_RELAXED);
}

#ifdef __cplusplus
}
#endif

#endif
