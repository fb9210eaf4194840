/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Sleeping and waking: which CPUs are idle, and on which ones a call wakes threads. A wake-up counts for the call in
 * whose context it happens, because that call pays for it; on loopback, so does one in a network softirq on top of the
 * call. One in another interrupt counts for no call, as far as its tracepoints tell; docs/trace.md has the exceptions.
 */
#ifndef ASSAY_WAKEUP_H
#define ASSAY_WAKEUP_H

#include "state.h"

const volatile u32 recorder = 0; /* thread that reads the rings */

static __always_inline void forget_wakeups(struct thread *thread)
{
	thread->idle_ns = 0;
	thread->woken_idle_ns = 0;
	thread->idle_sleeps = 0;
	thread->woken_same = 0;
	thread->woken_busy = 0;
	thread->woken_idle = 0;
	thread->wakee = 0;
}

/* Returns how long this CPU had been idle if it stops being so, otherwise 0. The idle thread of every CPU has
 * number 0. */
static __always_inline u64 change_idle(struct task_struct *from, struct task_struct *to)
{
	u32 index = bpf_get_smp_processor_id();
	struct idle *idle;
	u64 since_ns;

	if (from->pid && to->pid)
		return 0;
	idle = bpf_map_lookup_elem(&idles, &index);
	if (!idle)
		return 0;
	since_ns = idle->since_ns;
	*(volatile u64 *)&idle->since_ns = to->pid ? 0 : bpf_ktime_get_ns();
	return to->pid && since_ns ? bpf_ktime_get_ns() - since_ns : 0;
}

static __always_inline u64 idle_since_ns(u32 index)
{
	struct idle *idle = bpf_map_lookup_elem(&idles, &index);

	return idle ? *(volatile u64 *)&idle->since_ns : 0;
}

/* The CPU on which the thread ran last, or for which it is queued. */
static __always_inline u32 cpu_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->thread_info.cpu) ? task->thread_info.cpu : 0;
}

/* Counts the last wake-up of the call as one on CPU `index`. */
static __always_inline void count_wakee(struct thread *thread, u32 index)
{
	u64 since_ns, now_ns;

	if (index == bpf_get_smp_processor_id()) {
		thread->wakee_place = SAME_CPU;
		thread->woken_same++;
		return;
	}
	since_ns = idle_since_ns(index);
	if (!since_ns) {
		thread->wakee_place = BUSY_CPU;
		thread->woken_busy++;
		return;
	}
	thread->wakee_place = IDLE_CPU;
	now_ns = bpf_ktime_get_ns();
	thread->wakee_idle_ns = now_ns > since_ns ? now_ns - since_ns : 0; /* the clocks of two CPUs may differ */
	thread->woken_idle_ns += thread->wakee_idle_ns;
	thread->woken_idle++;
}

static __always_inline void count_wakeup(struct task_struct *wakee)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct thread *thread = traced(waker);
	struct cpu *cpu;

	if (!thread)
		return;
	if (!thread->in_call)
		return;
	thread->wakee = 0;
	/* A ring that fills wakes the recorder, and a thread that decides not to sleep after all "wakes" itself. */
	if (wakee->pid == recorder || wakee->pid == waker->pid)
		return;
	cpu = this_cpu();
	if (!cpu)
		return;
	if (cpu->irq_depth)
		return;
	thread->wakee = wakee->pid;
	count_wakee(thread, cpu_of(wakee));
}

/* A move in another state is not part of a wake-up. */
static __always_inline void redirect_wakeup(struct task_struct *wakee, u32 index)
{
	struct thread *thread;

	if (wakee->__state != TASK_WAKING)
		return;
	thread = traced(bpf_get_current_task_btf());
	if (!thread)
		return;
	if (!thread->in_call || thread->wakee != wakee->pid)
		return;
	if (thread->wakee_place == SAME_CPU) {
		thread->woken_same--;
	} else if (thread->wakee_place == BUSY_CPU) {
		thread->woken_busy--;
	} else {
		thread->woken_idle--;
		thread->woken_idle_ns -= thread->wakee_idle_ns;
	}
	count_wakee(thread, index);
}

#endif
