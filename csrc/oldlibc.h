/* Bindings to functions of an older C library than the one that ftrma is compiled with.

   A library that is linked with glibc 2.36 asks for the newest version of each function, and would
   not load where glibc is older, although these functions have been there, unchanged, for long. The
   compiler reads this file in front of each source. So a wheel of ftrma needs glibc 2.17;
   .ci/wheel has auditwheel look at that. (The wheel of Open MPI needs 2.28.) */
#ifndef FTRMA_OLDLIBC_H
#define FTRMA_OLDLIBC_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <features.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
#define FTRMA_FIRST "GLIBC_2.2.5"
#else
#define FTRMA_FIRST "GLIBC_2.17"
#endif

#if __GLIBC_PREREQ(2, 32)
__asm__(".symver pthread_sigmask, pthread_sigmask@" FTRMA_FIRST);
#endif
#if __GLIBC_PREREQ(2, 34)
__asm__(".symver pthread_create, pthread_create@" FTRMA_FIRST);
__asm__(".symver pthread_detach, pthread_detach@" FTRMA_FIRST);
__asm__(".symver pthread_join, pthread_join@" FTRMA_FIRST);
__asm__(".symver pthread_kill, pthread_kill@" FTRMA_FIRST);
__asm__(".symver dlsym, dlsym@" FTRMA_FIRST);
#endif

#if __GLIBC_PREREQ(2, 33)
#include <sys/stat.h>
/* Up to 2.32 fstat was no function of the library, but a call of this one. */
int __fxstat(int version, int fd, struct stat *st);
#ifdef __x86_64__
#define fstat(fd, st) __fxstat(1, fd, st)
#else
#define fstat(fd, st) __fxstat(0, fd, st)
#endif
#endif

#endif
#endif
