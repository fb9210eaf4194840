/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * State shared by the programs: traced threads, counters and rings of the CPUs, and how a record is written.
 */
#ifndef ASSAY_STATE_H
#define ASSAY_STATE_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "record.h"

const volatile u64 wake_bytes = 0; /* ring fill level above which the consumer is woken */

u64 stopped_ns = 0; /* end of the recording: once set, later events are ignored */

enum off_state { ON_CPU = 0, BLOCKED = 1, WAITING = 2 };
enum place { SAME_CPU = 0, BUSY_CPU = 1, IDLE_CPU = 2 };

struct thread {
	u64 begin_ns;
	u64 args[6];
	u64 blocked_ns, waiting_ns, irq_ns, softnet_ns;
	u64 off_since_ns;
	u64 off_begin_ns, off_blocked_ns; /* of the current period off the CPU */
	u64 inode;
	u64 idle_ns, woken_idle_ns;
	u64 wakee_idle_ns; /* part of `woken_idle_ns` for the last wake-up */
	u32 voluntary, involuntary, faults;
	u32 idle_sleeps, woken_same, woken_busy, woken_idle;
	u32 address_room; /* bytes for the address that the call stores */
	u32 wakee; /* the thread that the call woke last, 0 for none; `wakee_place` is how it was counted */
	u16 number;
	u16 flags;
	u8 in_call;
	u8 descriptor;
	u8 off_state;
	u8 wakee_place;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* State of one CPU. Programs here cannot be preempted, and no interrupt handler writes records. */
struct cpu {
	u64 made;
	u64 lost;
	u64 unreported; /* lost since the last kept record */
	u64 layer_since_ns; /* last change of the two below */
	u32 irq_depth;
	bool in_softnet;
	bool reads_user; /* the memory of the program */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* When a CPU became idle, 0 while it runs a thread or if it has not switched since the probe was attached. Other CPUs
 * read it, so each has a cache line of its own. */
struct idle {
	u64 since_ns;
	u64 unused[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader to the number of CPUs */
	__type(key, u32);
	__type(value, struct idle);
} idles SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* a template: the loader creates the real rings */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* set by the loader to the number of CPUs */
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

static __always_inline struct cpu *this_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

static __always_inline struct thread *entry(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, NULL, 0);
}

/* Detaching the programs one after the other takes a while; this check makes all of them stop at the same time. */
static __always_inline struct thread *traced(struct task_struct *task)
{
	if (*(volatile u64 *)&stopped_ns)
		return NULL;
	return entry(task);
}

/* Returns a zeroed record with its identity filled in, or NULL if it was lost; the loss is counted. */
static __always_inline struct record *make(void **ring, struct task_struct *task, u8 kind)
{
	u32 index = bpf_get_smp_processor_id();
	struct cpu *cpu = this_cpu();
	struct record *record;

	if (!cpu)
		return NULL;
	cpu->made++;
	*ring = bpf_map_lookup_elem(&rings, &index);
	if (!*ring) {
		cpu->lost++;
		cpu->unreported++;
		return NULL;
	}
	record = bpf_ringbuf_reserve(*ring, sizeof(*record), 0);
	if (!record) {
		cpu->lost++;
		cpu->unreported++;
		return NULL;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->lost = cpu->unreported > 0xffffffff ? 0xffffffff : cpu->unreported;
	cpu->unreported -= record->lost;
	record->process = task->tgid;
	record->thread = task->pid;
	record->cpu = index;
	record->kind = kind;
	return record;
}

/* Waking the consumer costs more than a record: it polls, and is woken only when its ring fills. */
static __always_inline void keep(void *ring, struct record *record)
{
	u64 fill = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);

	bpf_ringbuf_submit(record, fill > wake_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

static __always_inline void keep_call(struct task_struct *task, struct thread *thread, u8 kind, u16 flags,
				      s64 result, u64 now_ns)
{
	struct record *record;
	void *ring;

	record = make(&ring, task, kind);
	if (!record)
		return;
	record->begin_ns = thread->begin_ns;
	record->elapsed_ns = now_ns - thread->begin_ns;
	record->blocked_ns = thread->blocked_ns;
	record->waiting_ns = thread->waiting_ns;
	record->irq_ns = thread->irq_ns;
	record->softnet_ns = thread->softnet_ns;
	__builtin_memcpy(record->args, thread->args, sizeof(record->args));
	record->result = result;
	record->inode = thread->inode;
	record->voluntary = thread->voluntary;
	record->involuntary = thread->involuntary;
	record->faults = thread->faults;
	record->number = thread->number;
	record->descriptor = thread->descriptor;
	record->flags = thread->flags | flags | FLAG_WAKEUPS;
	record->idle_ns = thread->idle_ns;
	record->woken_idle_ns = thread->woken_idle_ns;
	record->idle_sleeps = thread->idle_sleeps;
	record->woken_same = thread->woken_same;
	record->woken_busy = thread->woken_busy;
	record->woken_idle = thread->woken_idle;
	keep(ring, record);
}

#endif
