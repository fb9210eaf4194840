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
#include "rule.h"
#include "state.h"

#define CONTENT_PIECE 48
#define CONTENT_PIECES 5 /* of 210,729 files of a system with a build of a large project, no path is longer */
#define CONTENT_BYTES (CONTENT_PIECE * CONTENT_PIECES) /* at most: longer paths are cut */
#define ADDRESS_BYTES 128 /* struct sockaddr_storage: the kernel accepts no longer address */

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

/* A read of absent memory is a page fault of the probe, not of the program: the fault programs leave it out. */
static __always_inline void set_reading(bool reads_user)
{
	struct cpu *cpu = this_cpu();

	if (cpu)
		cpu->reads_user = reads_user;
}

/* Notes how long an address the program has room for: the call replaces this by the length of the whole address. */
static __always_inline void note_room(struct thread *thread)
{
	u16 rule = rule_of(thread);
	void *length;

	if (!(rule & RULE_IF_SUCCEEDED))
		return;
	if (!argument(thread, first_position(rule)))
		return; /* as in every `recv` */
	length = (void *)argument(thread, second_position(rule));
	set_reading(true);
	if (bpf_probe_read_user(&thread->address_room, sizeof(thread->address_room), length))
		thread->address_room = 0;
	set_reading(false);
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
		record->inode = position - 1;
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
	void *path = (void *)argument(thread, position);
	long bytes;

	if (!path)
		return;
	bytes = bpf_probe_read_user_str(content->bytes, sizeof(content->bytes), path);
	if (bytes < 0)
		return;
	if (bytes == 0)
		bytes = 1; /* an empty path on older kernels */
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
	void *address = (void *)argument(thread, first_position(rule));
	u64 length = argument(thread, second_position(rule));
	u32 bytes = length;
	u16 flags = 0;
	u16 family;
	u32 most;

	if (!address)
		return;
	if (rule & RULE_IF_SUCCEEDED) {
		if (bpf_probe_read_user(&bytes, sizeof(bytes), (void *)length))
			return;
		if (bytes > thread->address_room) {
			bytes = thread->address_room;
			flags = FLAG_CUT;
		}
	}
	if (bytes < sizeof(family) || bytes > ADDRESS_BYTES)
		return;
	if (bpf_probe_read_user(&family, sizeof(family), address))
		return;
	most = bytes_of_family(family);
	if (bytes > most)
		bytes = most;
	if (bytes > ADDRESS_BYTES)
		return; /* never: for the verifier */
	if (bpf_probe_read_user(content->bytes, bytes, address))
		return;
	keep_content(task, thread, first_position(rule), content, bytes, flags, now_ns);
}

static __always_inline void keep_contents(struct task_struct *task, struct thread *thread, s64 result, u64 now_ns)
{
	u16 rule = rule_of(thread);
	struct content *content;
	u32 zero = 0;

	if (!first_position(rule))
		return;
	if (rule & (result < 0 ? RULE_IF_SUCCEEDED : RULE_IF_FAILED))
		return;
	content = bpf_map_lookup_elem(&contents, &zero);
	if (!content)
		return;
	set_reading(true);
	if (rule & RULE_ADDRESS) {
		keep_address(task, thread, rule, content, now_ns);
	} else {
		keep_path(task, thread, first_position(rule), content, now_ns);
		if (second_position(rule))
			keep_path(task, thread, second_position(rule), content, now_ns);
	}
	set_reading(false);
}

#endif
