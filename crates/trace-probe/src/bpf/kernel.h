/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
 *
 * The few kernel types that the probe accesses, each with the few fields that it reads. The loader relocates
 * every access with the running kernel's BTF, so that order, size and omitted fields do not matter. Constants
 * are stable kernel ABI. There is no generated vmlinux.h: this header is the complete list of the dependencies.
 */
#ifndef ASSAY_KERNEL_H
#define ASSAY_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0 };

enum { AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10, AF_NETLINK = 16 };
enum { SOCK_STREAM = 1, SOCK_DGRAM = 2, SOCK_RAW = 3, SOCK_SEQPACKET = 5 };
enum { IPPROTO_TCP = 6, IPPROTO_UDP = 17 };
enum {
	S_IFMT = 0170000,
	S_IFSOCK = 0140000,
	S_IFREG = 0100000,
	S_IFBLK = 0060000,
	S_IFDIR = 0040000,
	S_IFCHR = 0020000,
	S_IFIFO = 0010000,
};
enum { NET_TX_SOFTIRQ = 2, NET_RX_SOFTIRQ = 3 };
#define ANON_INODE_FS_MAGIC 0x09041934
#define PID_FS_MAGIC 0x50494446
#define VM_MAYSHARE 0x80 /* vm_area_struct.vm_flags: a shared mapping, also one of a file that is only readable */
#define TS_COMPAT 2 /* thread_info.status: the call in progress is a 32-bit one */
#define TASK_WAKING 0x200 /* task_struct.__state: from the choice of a CPU until the thread is queued there */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long bp, bx, r10, r9, r8, cx, dx, si, di;
};

struct super_block {
	unsigned long s_magic;
};

struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_rdev;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct sock_common {
	u16 skc_family;
	int skc_incoming_cpu;
};

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
};

struct socket {
	short type;
	struct sock *sk;
};

struct thread_info {
	u32 status;
	u32 cpu; /* not on a kernel for one CPU */
};

struct maple_tree {
	void *ma_root;
};

struct maple_range_64 {
	unsigned long pivot[15];
	void *slot[16];
};

struct maple_metadata {
	unsigned char end;
};

struct maple_arange_64 {
	unsigned long pivot[9];
	void *slot[10];
	struct maple_metadata meta;
};

enum { MM_ANONPAGES = 1 };

struct percpu_counter {
	long long count;
};

struct mm_struct {
	struct maple_tree mm_mt;
	struct percpu_counter rss_stat[2];
};

/* Before 6.2. */
typedef struct {
	long long counter;
} atomic64_t;

struct mm_rss_stat {
	atomic64_t count[2];
};

struct mm_struct___before_6_2 {
	struct mm_rss_stat rss_stat;
};

struct vm_area_struct {
	unsigned long vm_flags;
	const void *vm_ops;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	int pid;
	int tgid;
	int exit_code;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct files_struct *files;
	struct signal_struct *signal;
};

struct linux_binprm {
	const char *filename;
};

struct bpf_iter__task {
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
