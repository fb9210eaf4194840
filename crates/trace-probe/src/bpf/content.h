/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The contents of arguments: paths and socket addresses, read when a call returns, because the kernel has made their
 * memory present by then. They precede the record of the call, in records of up to CONTENT_PIECE bytes each.
 */
#ifndef ASSAY_CONTENT_H
#define ASSAY_CONTENT_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "record.h"
#include "state.h"

#define CONTENT_PIECE 48
#define CONTENT_PIECES 5 /* of 210,729 files of a system with a build of a large project, no path is longer */
#define CONTENT_BYTES (CONTENT_PIECE * CONTENT_PIECES) /* at most: longer paths are cut */
#define ADDRESS_BYTES 128 /* struct sockaddr_storage: the kernel accepts no longer address */

/* The bits of a call's rule; see `probe_pointers` in crates/trace. */
enum {
	POINTER_FIRST = 7,
	POINTER_SECOND = 7 << 3,
	POINTER_ADDRESS = 64,
	POINTER_IF_SUCCEEDED = 128,
	POINTER_IF_FAILED = 256,
};

const volatile u16 pointers[CALLS] = {};

/* A path is read with its terminator, and with one byte more to see whether it is longer. */
struct content {
	u8 bytes[CONTENT_BYTES + 2];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct content);
} contents SEC(".maps");

static __always_inline u16 pointer_rule(struct thread *thread)
{
	u32 number = thread->number;

	if (thread->flags & FLAG_COMPAT)
		return 0; /* its numbers are from another table */
	return number < CALLS ? pointers[number] : 0;
}

/* Positions in a rule are counted from 1. */
static __always_inline u64 first_argument(struct thread *thread, u16 rule)
{
	return argument(thread, (rule & POINTER_FIRST) - 1);
}

static __always_inline u64 second_argument(struct thread *thread, u16 rule)
{
	return argument(thread, ((rule & POINTER_SECOND) >> 3) - 1);
}

/* A read of absent memory is a page fault of the probe, not of the program: the fault programs leave it out. */
static __always_inline long read_user(void *to, u32 bytes, u64 from)
{
	struct cpu *cpu = this_cpu();
	long error;

	if (!cpu)
		return -1;
	cpu->reads_user = true;
	barrier();
	error = bpf_probe_read_user(to, bytes, (void *)from);
	barrier();
	cpu->reads_user = false;
	return error;
}

/* Returns the bytes of the path with its terminator, at most those of `content`. */
static __always_inline long read_path(struct content *content, u64 from)
{
	struct cpu *cpu = this_cpu();
	long bytes;

	if (!cpu)
		return -1;
	cpu->reads_user = true;
	barrier();
	bytes = bpf_probe_read_user_str(content->bytes, sizeof(content->bytes), (void *)from);
	barrier();
	cpu->reads_user = false;
	return bytes == 0 ? 1 : bytes; /* older kernels return 0 for an empty path */
}

/* Notes how long an address the program has room for: the call replaces this by the length of the whole address. */
static __always_inline void note_room(struct thread *thread)
{
	u16 rule = pointer_rule(thread);

	if (!(rule & POINTER_IF_SUCCEEDED))
		return;
	if (!first_argument(thread, rule))
		return; /* as in every `recv` */
	if (read_user(&thread->address_room, sizeof(thread->address_room), second_argument(thread, rule)))
		thread->address_room = 0;
}

/* Writes the first `bytes` bytes of `content`, at least one record. Stops at a record that is lost. */
static __always_inline void keep_content(struct task_struct *task, struct thread *thread, u32 position,
					 struct content *content, u32 bytes, u16 flags, u64 now_ns)
{
	u32 piece;

	for (piece = 0; piece < CONTENT_PIECES; piece++) {
		u32 from = piece * CONTENT_PIECE;
		u32 left = bytes - from;
		u32 size = left > CONTENT_PIECE ? CONTENT_PIECE : left;
		struct record *record;
		void *ring;

		if (piece && from >= bytes)
			break;
		record = make(&ring, task, RECORD_CONTENT);
		if (!record)
			break;
		record->begin_ns = now_ns;
		record->number = thread->number;
		record->inode = position;
		record->result = left;
		record->flags = flags;
		barrier_var(size);
		if (size <= CONTENT_PIECE) /* always: for the verifier of older kernels */
			bpf_probe_read_kernel(record->args, size, content->bytes + from);
		keep(ring, record);
	}
}

static __always_inline void keep_path(struct task_struct *task, struct thread *thread, u32 position,
				      struct content *content, u64 now_ns)
{
	u64 path = argument(thread, position);
	long bytes;

	if (!path)
		return;
	bytes = read_path(content, path);
	if (bytes < 0)
		return;
	if (bytes > CONTENT_BYTES + 1)
		keep_content(task, thread, position, content, CONTENT_BYTES, FLAG_CUT, now_ns);
	else
		keep_content(task, thread, position, content, bytes - 1, 0, now_ns);
}

/* Returns the bytes of an address of this family, of which a program may pass more: what follows has no meaning. */
static __always_inline u32 bytes_of_family(u16 family)
{
	switch (family) {
	case AF_INET:
		return 16;
	case AF_INET6:
		return 28;
	case AF_NETLINK:
		return 12;
	default:
		return ADDRESS_BYTES;
	}
}

static __always_inline void keep_address(struct task_struct *task, struct thread *thread, u16 rule,
					 struct content *content, u64 now_ns)
{
	u64 address = first_argument(thread, rule);
	u32 bytes = second_argument(thread, rule);
	u16 flags = 0;
	u16 family;
	u32 most;

	if (!address)
		return;
	if (rule & POINTER_IF_SUCCEEDED) {
		if (read_user(&bytes, sizeof(bytes), second_argument(thread, rule)))
			return;
		if (bytes > thread->address_room) {
			bytes = thread->address_room;
			flags = FLAG_CUT;
		}
	}
	if (bytes < sizeof(family) || bytes > ADDRESS_BYTES)
		return;
	if (read_user(&family, sizeof(family), address))
		return;
	most = bytes_of_family(family);
	if (bytes > most)
		bytes = most;
	if (bytes > ADDRESS_BYTES)
		return; /* never: for the verifier */
	if (read_user(content->bytes, bytes, address))
		return;
	keep_content(task, thread, (rule & POINTER_FIRST) - 1, content, bytes, flags, now_ns);
}

static __always_inline void keep_contents(struct task_struct *task, struct thread *thread, s64 result, u64 now_ns)
{
	u16 rule = pointer_rule(thread);
	struct content *content;
	u32 zero = 0;

	if (!rule)
		return;
	if (rule & (result < 0 ? POINTER_IF_SUCCEEDED : POINTER_IF_FAILED))
		return;
	content = bpf_map_lookup_elem(&contents, &zero);
	if (!content)
		return;
	if (rule & POINTER_ADDRESS) {
		keep_address(task, thread, rule, content, now_ns);
		return;
	}
	keep_path(task, thread, (rule & POINTER_FIRST) - 1, content, now_ns);
	if (rule & POINTER_SECOND)
		keep_path(task, thread, ((rule & POINTER_SECOND) >> 3) - 1, content, now_ns);
}

#endif
