# The table of `coverage`, from the tables of costs of all runs, oldest first.
#
# For each primitive: how often the typical cost of a later run lies in the interval of a run, over all pairs of a run
# with an interval "if measured again" and a later one. "within" is the interval within one run, over the same pairs. The
# interval of the share of all primitives is a bootstrap over blocks of runs that follow each other, because these are
# alike: each drawn set of runs weighs the pairs of its members.

BEGIN { FS = ","; draws = 2000; block = 10 }

/^primitive,/ {
    runs++
    delete column
    for (field = 1; field <= NF; field++) column[$field] = field
    next
}

/^[a-z_"]+\./ {
    # An id with a comma is quoted.
    line = $0
    if (match(line, /^"[^"]*"/)) { name = substr(line, 2, RLENGTH - 2); line = substr(line, RLENGTH + 1) } else name = $1
    split(line, value, ",")
    if (!(name in known)) { known[name] = 1; order[++names] = name }
    cost[name, runs] = value[column["typical"]]
    low["within", name, runs] = value[column["typical_low"]]
    high["within", name, runs] = value[column["typical_high"]]
    if ("if measured again_low" in column && value[column["if measured again_low"]] != "") {
        low["again", name, runs] = value[column["if measured again_low"]]
        high["again", name, runs] = value[column["if measured again_high"]]
    }
}

function holds(which, name, run, later) {
    return low[which, name, run] <= cost[name, later] && cost[name, later] <= high[which, name, run]
}

function share(part, whole) { return whole ? sprintf("%.1f", 100 * part / whole) : "-" }

END {
    printf "%-48s %8s %14s %9s %14s %9s\n", "", "pairs", "within: holds", "+-", "again: holds", "+-"
    for (i = 1; i <= names; i++) {
        name = order[i]
        pairs = within = again = width["within"] = width["again"] = intervals = 0
        for (run = 1; run < runs; run++) {
            if (!(("again", name, run) in low)) continue
            intervals++
            for (which in width) {
                width[which] += (high[which, name, run] - low[which, name, run]) / 2 / cost[name, run]
            }
            for (later = run + 1; later <= runs; later++) {
                if (!((name, later) in cost)) continue
                pairs++; within += holds("within", name, run, later)
                held = holds("again", name, run, later); again += held
                all[run, later]++; holding[run, later] += held
            }
        }
        printf "%-48s %8d %12s %% %7s %% %12s %% %7s %%\n", name, pairs, share(within, pairs), \
            share(width["within"], intervals), share(again, pairs), share(width["again"], intervals)
        all_pairs += pairs; all_within += within; all_again += again
    }
    if (!all_pairs) { printf "No run has an interval \"if measured again\" yet.\n"; exit 1 }
    srand(1)
    for (draw = 1; draw <= draws; draw++) {
        delete times
        for (drawn = 0; drawn < runs; drawn += block) {
            first = 1 + int((runs > block ? runs - block + 1 : 1) * rand())
            for (run = first; run < first + block && run <= runs; run++) times[run]++
        }
        part = whole = 0
        for (run in times) for (later in times) {
            if (!((run, later) in all)) continue
            weight = times[run] * times[later]
            whole += weight * all[run, later]; part += weight * holding[run, later]
        }
        if (whole) shares[++kept] = part / whole
    }
    sort(shares, kept)
    printf "\n%d runs. The interval of a run holds the cost of a later one in %s %% of %d pairs; the one if measured again\n", \
        runs, share(all_within, all_pairs), all_pairs
    printf "in %s %%, 95 %% interval %s to %s %%.\n", share(all_again, all_pairs), \
        share(quantile(shares, kept, 0.025), 1), share(quantile(shares, kept, 0.975), 1)
}
