# What a guard did in the phases of a load, from its log (`assay guard --log`, docs/guard.md). `marks` has two numbers
# for each phase: its clients, and the lines that the log had before it. The phase lasts from the first to the last
# period in which half of these clients or more were in flight or waited, in the mean. Prints eight figures for each: the
# transactions that were committed per second of the phase, of its first 5 s, of the next 5 s, of the time from then on,
# and of the 2 s with the lowest rate; and the median, the 10th and the 90th percentile of the limit over the time. If
# a phase is more than a second shorter than `seconds`, or the log has lost lines, prints that, and exits with 1.

BEGIN {
    FS = "[:,]"
    phases = split(marks, mark, " ") / 2
}

FNR == 1 { next }

# {"end_ns":1,"length_ns":2,"limit":3,"finished":4,"failed":5,"in_flight":6,"waiting":7,...
{
    if ($2 - $4 != end_ns) reason = "the log has lost lines"
    end_ns = $2
    # A part of this period was before the mark.
    if (phase < phases && FNR == mark[2 * phase + 2] + 1) { phase++; next }
    there = $12 + $14 >= mark[2 * phase - 1] / 2
    if (!phase || !periods[phase] && !there) next
    n = ++periods[phase]
    length_s[phase, n] = $4 / 1e9
    limit[phase, n] = $6
    committed[phase, n] = $8
    if (there) last[phase] = n
}

# Of the periods of the phase that ended in the time from `from` to `to` seconds after its beginning.
function rate(phase, from, to,   n, time, length_in, committed_in) {
    for (n = 1; n <= last[phase]; n++) {
        time += length_s[phase, n]
        if (time <= from || time > to) continue
        length_in += length_s[phase, n]
        committed_in += committed[phase, n]
    }
    return committed_in / length_in
}

function lowest(phase, seconds,   first, n, length_in, committed_in, low) {
    low = -1
    first = 1
    for (n = 1; n <= last[phase]; n++) {
        length_in += length_s[phase, n]
        committed_in += committed[phase, n]
        for (; length_in - length_s[phase, first] >= seconds; first++) {
            length_in -= length_s[phase, first]
            committed_in -= committed[phase, first]
        }
        if (length_in >= seconds && (low < 0 || committed_in / length_in < low)) low = committed_in / length_in
    }
    return low
}

# The limit that was not exceeded for this share of the time.
function limit_at(phase, share,   n, i, time, whole, seen, levels) {
    split("", time)
    for (n = 1; n <= last[phase]; n++) {
        if (!(limit[phase, n] in time)) values[++levels] = limit[phase, n]
        time[limit[phase, n]] += length_s[phase, n]
        whole += length_s[phase, n]
    }
    sort(values, levels)
    for (i = 1; i < levels; i++) {
        seen += time[values[i]]
        if (seen >= share * whole) break
    }
    return values[i]
}

END {
    for (phase = 1; phase <= phases; phase++) {
        whole = 0
        for (n = 1; n <= last[phase]; n++) whole += length_s[phase, n]
        if (whole < seconds - 1) reason = sprintf("phase %d lasted %.1f s", phase, whole)
    }
    if (reason) { print reason; exit 1 }
    for (phase = 1; phase <= phases; phase++) {
        printf "%s%.1f %.1f %.1f %.1f %.1f", phase == 1 ? "" : " ", rate(phase, 0, 1e9), rate(phase, 0, 5), \
            rate(phase, 5, 10), rate(phase, 10, 1e9), lowest(phase, 2)
        printf " %d %d %d", limit_at(phase, 0.5), limit_at(phase, 0.1), limit_at(phase, 0.9)
    }
}
