/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
 *
 * The kind of object that a file descriptor of the current task refers to, its inode, and where the peer of a TCP
 * connection runs. Facts are collected in one of two ways (typed loads if the kernel has bpf_rdonly_cast, 6.2 and
 * later; probe reads otherwise) and evaluated by one rule.
 */
#ifndef ASSAY_DESCRIPTOR_H
#define ASSAY_DESCRIPTOR_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "record.h"
#include "state.h"

extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

/* Set before loading; the verifier then removes the unused branch. */
const volatile bool probe_reads_only = false;

struct facts {
	u64 inode;
	u64 magic; /* of the file system */
	u64 name;  /* first eight bytes of the name of an anonymous inode */
	u32 mode;
	u16 family, protocol, type;
	int incoming_cpu; /* of the last packet, -1 before the first one */
};

/* All openings of /dev/null are one device, even if its nodes are on different file systems. */
static __always_inline bool is_device(u32 mode)
{
	u32 format = mode & S_IFMT;

	return format == S_IFCHR || format == S_IFBLK;
}

static __always_inline bool may_be_anonymous(u32 mode)
{
	u32 format = mode & S_IFMT;

	return format == 0 || format == S_IFREG; /* anonymous inodes have been regular files since 6.16 */
}

static __always_inline void read_name(struct facts *facts, const unsigned char *name)
{
	bpf_probe_read_kernel(&facts->name, sizeof(facts->name), name);
}

#define CAST(type, pointer) ((struct type *)bpf_rdonly_cast(pointer, bpf_core_type_id_kernel(struct type)))

static __always_inline void facts_by_cast(void *object, struct facts *facts)
{
	struct file *file = CAST(file, object);
	struct inode *inode = file->f_inode;

	facts->mode = inode->i_mode;
	facts->inode = is_device(facts->mode) ? inode->i_rdev : inode->i_ino;
	if ((facts->mode & S_IFMT) == S_IFSOCK) {
		struct socket *socket = CAST(socket, file->private_data);
		struct sock *sock = socket->sk;

		facts->type = socket->type;
		facts->family = sock->__sk_common.skc_family;
		facts->protocol = sock->sk_protocol;
		facts->incoming_cpu = sock->__sk_common.skc_incoming_cpu;
	} else if (may_be_anonymous(facts->mode)) {
		facts->magic = inode->i_sb->s_magic;
		if (facts->magic == ANON_INODE_FS_MAGIC)
			read_name(facts, file->f_path.dentry->d_name.name);
	}
}

static __always_inline void facts_by_read(void *object, struct facts *facts)
{
	struct file *file = object;

	facts->mode = BPF_CORE_READ(file, f_inode, i_mode);
	facts->inode = is_device(facts->mode) ? BPF_CORE_READ(file, f_inode, i_rdev) :
						BPF_CORE_READ(file, f_inode, i_ino);
	if ((facts->mode & S_IFMT) == S_IFSOCK) {
		struct socket *socket = BPF_CORE_READ(file, private_data);
		struct sock *sock = BPF_CORE_READ(socket, sk);

		facts->type = BPF_CORE_READ(socket, type);
		facts->family = BPF_CORE_READ(sock, __sk_common.skc_family);
		facts->protocol = BPF_CORE_READ(sock, sk_protocol);
		facts->incoming_cpu = BPF_CORE_READ(sock, __sk_common.skc_incoming_cpu);
	} else if (may_be_anonymous(facts->mode)) {
		facts->magic = BPF_CORE_READ(file, f_inode, i_sb, s_magic);
		if (facts->magic == ANON_INODE_FS_MAGIC)
			read_name(facts, BPF_CORE_READ(file, f_path.dentry, d_name.name));
	}
}

static __always_inline u8 socket_kind(const struct facts *facts)
{
	bool six = facts->family == AF_INET6;

	if (facts->family == AF_INET || six) {
		if (facts->protocol == IPPROTO_TCP && facts->type == SOCK_STREAM)
			return six ? DESCRIPTOR_TCP6 : DESCRIPTOR_TCP4;
		if (facts->protocol == IPPROTO_UDP && facts->type == SOCK_DGRAM)
			return six ? DESCRIPTOR_UDP6 : DESCRIPTOR_UDP4;
		return facts->type == SOCK_RAW ? DESCRIPTOR_RAW : DESCRIPTOR_SOCKET;
	}
	if (facts->family == AF_UNIX)
		return facts->type == SOCK_DGRAM ? DESCRIPTOR_UNIX_DATAGRAM : DESCRIPTOR_UNIX_STREAM;
	if (facts->family == AF_NETLINK)
		return DESCRIPTOR_NETLINK;
	return DESCRIPTOR_SOCKET;
}

#define WORD(a, b, c, d, e, f, g, h)                                                                         \
	((u64)(a) | (u64)(b) << 8 | (u64)(c) << 16 | (u64)(d) << 24 | (u64)(e) << 32 | (u64)(f) << 40 |       \
	 (u64)(g) << 48 | (u64)(h) << 56)

/* By name: the operation tables that would distinguish them are not in every kernel's symbol table. */
static __always_inline u8 anonymous_kind(u64 name)
{
	if (name == WORD('[', 'e', 'v', 'e', 'n', 't', 'f', 'd'))
		return DESCRIPTOR_EVENTFD;
	if (name == WORD('[', 'e', 'v', 'e', 'n', 't', 'p', 'o'))
		return DESCRIPTOR_EPOLL;
	if (name == WORD('[', 't', 'i', 'm', 'e', 'r', 'f', 'd'))
		return DESCRIPTOR_TIMERFD;
	if (name == WORD('[', 's', 'i', 'g', 'n', 'a', 'l', 'f'))
		return DESCRIPTOR_SIGNALFD;
	if (name == WORD('i', 'n', 'o', 't', 'i', 'f', 'y', 0))
		return DESCRIPTOR_INOTIFY;
	if (name == WORD('[', 'i', 'o', '_', 'u', 'r', 'i', 'n'))
		return DESCRIPTOR_IO_URING;
	return DESCRIPTOR_ANONYMOUS;
}

static __always_inline u8 judge(const struct facts *facts)
{
	if (facts->magic == ANON_INODE_FS_MAGIC)
		return anonymous_kind(facts->name);
	if (facts->magic == PID_FS_MAGIC)
		return DESCRIPTOR_ANONYMOUS;
	switch (facts->mode & S_IFMT) {
	case S_IFREG:
		return DESCRIPTOR_FILE;
	case S_IFDIR:
		return DESCRIPTOR_DIRECTORY;
	case S_IFCHR:
		return DESCRIPTOR_CHARACTER_DEVICE;
	case S_IFBLK:
		return DESCRIPTOR_BLOCK_DEVICE;
	case S_IFIFO:
		return DESCRIPTOR_PIPE;
	case S_IFSOCK:
		return socket_kind(facts);
	}
	return DESCRIPTOR_ANONYMOUS;
}

/* Collects the facts about a descriptor of the task. Returns false if it is not open. */
static __always_inline bool look_up(struct task_struct *task, int number, struct facts *facts)
{
	struct files_struct *files = task->files;
	struct fdtable *table;
	void *file = NULL;

	if (!files)
		return false;
	table = files->fdt;
	if ((u32)number >= table->max_fds)
		return false;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + (u32)number);
	if (!file)
		return false;
	if (!probe_reads_only && bpf_ksym_exists(bpf_rdonly_cast))
		facts_by_cast(file, facts);
	else
		facts_by_read(file, facts);
	return true;
}

static __always_inline bool is_tcp(u8 kind)
{
	return kind == DESCRIPTOR_TCP4 || kind == DESCRIPTOR_TCP6;
}

/* On loopback, a packet arrives on the CPU of its sender: that of the peer, unless it is an acknowledgement that the
 * kernel sends when data arrive. */
static __always_inline void locate_peer(struct thread *thread, const struct facts *facts)
{
	bool is_here = facts->incoming_cpu == bpf_get_smp_processor_id();

	thread->flags &= ~(FLAG_PEER_SAME_CPU | FLAG_PEER_OTHER_CPU);
	if (is_tcp(thread->descriptor) && facts->incoming_cpu >= 0)
		thread->flags |= is_here ? FLAG_PEER_SAME_CPU : FLAG_PEER_OTHER_CPU;
}

static __always_inline void classify(struct task_struct *task, struct thread *thread, int number)
{
	struct facts facts = {};

	thread->descriptor = DESCRIPTOR_BAD;
	thread->inode = 0;
	if (!look_up(task, number, &facts))
		return;
	thread->descriptor = judge(&facts);
	thread->inode = facts.inode;
	locate_peer(thread, &facts);
}

/* After a sleep: packets have arrived since the call began. The descriptor may have been closed since. */
static __always_inline void locate_peer_again(struct task_struct *task, struct thread *thread, int number)
{
	struct facts facts = {};

	if (!is_tcp(thread->descriptor) || !look_up(task, number, &facts))
		return;
	if (facts.inode == thread->inode && is_tcp(judge(&facts)))
		locate_peer(thread, &facts);
}

#endif
