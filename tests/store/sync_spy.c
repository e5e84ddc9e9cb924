/* Preloaded under a process: says "sync" for each fsync and fdatasync; fails them while the file named by SYNC_FAILS
   is there, as a dying disk does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int sync_as(const char *name, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  const char *fails = getenv("SYNC_FAILS");
  if (fails && access(fails, F_OK) == 0) {
    errno = EIO;
    return -1;
  }
  if (write(STDOUT_FILENO, "sync\n", 5) != 5) _exit(70);
  return real(fd);
}

int fsync(int fd) { return sync_as("fsync", fd); }
int fdatasync(int fd) { return sync_as("fdatasync", fd); }
