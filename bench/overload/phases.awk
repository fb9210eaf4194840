# What a guard did in the phases of a load, from its log (`assay guard --log`, docs/guard.md). `marks` has two numbers
# for each phase: its clients, and the lines that the log had before it. The phase lasts from the first to the last
# period of its own at whose end half of these clients or more are in flight or wait. Prints eight figures for each: the
# transactions that ended per second of the phase, of its first 5 s, of the next 5 s, of the time from then on, and of
# the 2 s with the lowest rate; and the median, the 10th and the 90th percentile of the limit over the time. Exits with
# 1 if a phase does not last for more than 10 s.

BEGIN {
    FS = "[:,]"
    phases = split(marks, mark, " ") / 2
}

FNR == 1 { next }

# {"end_ns":1,"length_ns":2,"limit":3,"finished":4,"failed":5,"in_flight":6,"waiting":7,...
{
    while (phase < phases && FNR > mark[2 * phase + 2]) phase++
    there = $12 + $14 >= mark[2 * phase - 1] / 2
    if (!periods[phase] && !there) next
    n = ++periods[phase]
    length_s[phase, n] = $4 / 1e9
    limit[phase, n] = $6
    ended[phase, n] = $8
    if (there) last[phase] = n
}

# Of the periods of the phase that end in the time from `from` to `to` seconds after its beginning.
function rate(phase, from, to,   n, time, length_in, ended_in) {
    for (n = 1; n <= last[phase]; n++) {
        time += length_s[phase, n]
        if (time <= from || time > to) continue
        length_in += length_s[phase, n]
        ended_in += ended[phase, n]
    }
    if (!length_in) exit failed = 1
    return ended_in / length_in
}

function lowest(phase, seconds,   first, n, length_in, ended_in, low) {
    low = -1
    first = 1
    for (n = 1; n <= last[phase]; n++) {
        length_in += length_s[phase, n]
        ended_in += ended[phase, n]
        for (; length_in - length_s[phase, first] >= seconds; first++) {
            length_in -= length_s[phase, first]
            ended_in -= ended[phase, first]
        }
        if (length_in >= seconds && (low < 0 || ended_in / length_in < low)) low = ended_in / length_in
    }
    return low
}

# The limit below which the phase was for this share of its time.
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
        printf "%s%.1f %.1f %.1f %.1f %.1f", phase == 1 ? "" : " ", rate(phase, 0, 1e9), rate(phase, 0, 5), \
            rate(phase, 5, 10), rate(phase, 10, 1e9), lowest(phase, 2)
        printf " %d %d %d", limit_at(phase, 0.5), limit_at(phase, 0.1), limit_at(phase, 0.9)
    }
    exit failed
}
