/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
 *
 * The address space of a task: which memory area contains an address, anonymous memory or a file; and its size.
 *
 * bpf_find_vma would take the lock of the address space, and release it by an interrupt of this CPU. The areas are in
 * a maple tree, whose nodes are freed by RCU; a program runs in a read-side section and can therefore walk it without
 * a lock, as the kernel's own handling of page faults does. A concurrent change of the tree may yield the area that
 * was there before it, or a node that is no longer part of the tree: then the area is unknown. A node is copied with
 * one read; what is found there is a number, and never dereferenced.
 */
#ifndef ASSAY_AREA_H
#define ASSAY_AREA_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "record.h"

/* A process may have 65,530 areas unless changed, with gaps between them. A node has at least four entries, and a leaf
 * at least six. */
#define AREA_LEVELS 10

#define PAGE_BYTES 4096 /* of x86-64 */

#define NODE_WORDS 32 /* 256 bytes, to which nodes are aligned */
#define LEAF_PIVOTS 15
#define INNER_PIVOTS 9

/* The type of a node is in bits 3 to 6 of its address. The areas of an address space are in leaves, and all other
 * nodes have this type. */
enum { NODE_INNER = 3 };

static __always_inline bool is_node(u64 root)
{
	return (root & 3) == 2 && root > 4096;
}

/* 1 if an entry that ends at this pivot is before the address, 0 if it is not, or the pivot is the largest number.
 * Without branches, since the verifier follows every one of them on every level. User addresses and other pivots are
 * less than 2^63. */
static __always_inline u64 is_before(u64 pivot, u64 address)
{
	u64 is_less = (pivot - address) >> 63;
	u64 is_largest = pivot >> 63;

	barrier_var(is_less);
	return is_less & ~is_largest;
}

/* The position of the entry for the address in a node with this many pivots, of which the ones up to `end` are valid:
 * the first one that does not end before it. */
static __always_inline u32 position(const u64 *node, u32 pivot, u32 pivots, u32 end, u64 address)
{
	u64 is_past = 1;
	u64 at = 0;
	u32 i;

	for (i = 0; i < pivots; i++) {
		is_past &= is_before(node[(pivot + i) % NODE_WORDS], address);
		at += is_past;
	}
	return at < end ? at : end;
}

/* Not the address of an area. */
#define UNREADABLE (~0ull)

/* The area that contains the address, 0 if there is none. */
static __always_inline u64 area_at(u64 root, u64 address)
{
	const u32 leaf_pivot = bpf_core_field_offset(struct maple_range_64, pivot) / sizeof(u64);
	const u32 leaf_slot = bpf_core_field_offset(struct maple_range_64, slot) / sizeof(u64);
	const u32 inner_pivot = bpf_core_field_offset(struct maple_arange_64, pivot) / sizeof(u64);
	const u32 inner_slot = bpf_core_field_offset(struct maple_arange_64, slot) / sizeof(u64);
	const u32 inner_end = bpf_core_field_offset(struct maple_arange_64, meta) / sizeof(u64);
	u64 node[NODE_WORDS];
	u64 entry = root;
	int level;

	if (!is_node(root))
		return 0; /* no area, or a single one that begins at address 0 */
	for (level = 0; level < AREA_LEVELS; level++) {
		u32 type = (entry >> 3) & 15;
		u32 slot;
		u32 end;

		if (bpf_probe_read_kernel(node, sizeof(node), (void *)(entry & ~255ull)))
			return UNREADABLE;
		if ((node[0] & ~255ull) == (entry & ~255ull))
			return UNREADABLE; /* a node that was removed is its own parent */
		if (type == NODE_INNER) {
			end = (u8)node[inner_end % NODE_WORDS];
			slot = inner_slot + position(node, inner_pivot, INNER_PIVOTS, end, address);
		} else {
			/* The last entry of a leaf that is not full contains the position of the last valid one. */
			end = node[(leaf_pivot + LEAF_PIVOTS - 1) % NODE_WORDS] ?
				      LEAF_PIVOTS :
				      (u8)node[(leaf_slot + LEAF_PIVOTS) % NODE_WORDS];
			slot = leaf_slot + position(node, leaf_pivot, LEAF_PIVOTS, end, address);
		}
		entry = node[slot % NODE_WORDS];
		if (type != NODE_INNER)
			return entry;
	}
	return UNREADABLE;
}

static __always_inline u8 area_kind(struct task_struct *task, u64 address)
{
	struct vm_area_struct *area;
	const void *operations;
	unsigned long flags;
	struct mm_struct *mm;
	u64 found;

	if (!bpf_core_field_exists(struct mm_struct, mm_mt))
		return AREA_UNKNOWN; /* before 6.1: a red-black tree, which only the lock protects */
	mm = task->mm;
	if (!mm)
		return AREA_NONE;
	found = area_at((u64)BPF_CORE_READ(mm, mm_mt.ma_root), address);
	if (found == UNREADABLE)
		return AREA_UNKNOWN;
	if (!found)
		return AREA_NONE;
	area = (void *)found;
	if (BPF_CORE_READ_INTO(&flags, area, vm_flags) || BPF_CORE_READ_INTO(&operations, area, vm_ops))
		return AREA_UNKNOWN;
	if (flags & VM_MAYSHARE)
		return AREA_SHARED;
	return operations ? AREA_PRIVATE_FILE : AREA_ANONYMOUS;
}

/* The anonymous memory of a task that is present, in bytes, without the changes that a CPU has not yet added. */
static __always_inline u64 anonymous_bytes(struct task_struct *task)
{
	struct mm_struct___before_6_2 *before_6_2 = (void *)task->mm;
	struct mm_struct *mm = task->mm;
	s64 pages;

	if (!mm)
		return 0;
	if (bpf_core_field_exists(before_6_2->rss_stat.count[MM_ANONPAGES].counter))
		pages = BPF_CORE_READ(before_6_2, rss_stat.count[MM_ANONPAGES].counter);
	else
		pages = BPF_CORE_READ(mm, rss_stat[MM_ANONPAGES].count);
	return pages > 0 ? (u64)pages * PAGE_BYTES : 0;
}

#endif
