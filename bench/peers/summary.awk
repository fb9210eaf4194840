# The table of `repeatability`, from lines `program|name|figure verdict`, one for each round in the order of rounds.
#
# For each name: the mean and the coefficient of variation of each program over the same rounds, and how many those are.
# A round counts if lmbench printed a figure and assay one that it does not call disturbed itself. The goal is the
# larger of 2 % and a third of lmbench's coefficient; fewer than `least` rounds leave it open.

BEGIN { least = 6 }

{
    split($3, parts, " ")
    if (!($2 in seen)) { seen[$2] = 1; order[++names] = $2 }
    round = ++rounds[$1, $2]
    if (parts[1] == "") { none[$1, $2]++; if ($1 != "perf") out[$2, round] = 1 }
    if ($1 == "assay" && $3 ~ /disturbed/) { disturbed[$2]++; out[$2, round] = 1 }
    figures[$1, $2, round] = parts[1]
}

# Sets `n`, `mean` and `cv` (per cent) of the rounds that count; `cv` is -1 where it is unknown.
function estimate(who, name,   round, value, sum, squares) {
    n = sum = squares = 0
    for (round = 1; round <= rounds[who, name]; round++) {
        if ((name, round) in out) continue
        value = figures[who, name, round]
        if (value == "") continue
        n++; sum += value; squares += value ^ 2
    }
    mean = n ? sum / n : 0
    cv = -1
    if (n > 1) {
        squares = (squares - n * mean ^ 2) / (n - 1)
        cv = 100 * sqrt(squares > 0 ? squares : 0) / mean
    }
}

function figure(who, name) {
    estimate(who, name)
    if (!n) return sprintf("%10s %5s", "none", "")
    return sprintf("%10.4g %5s", mean, cv < 0 ? "-" : sprintf("%.1f", cv))
}

END {
    printf "%-28s %16s %16s %16s %7s %6s %5s %13s\n", "", "lmbench  ns  CV%", "assay  ns  CV%", "perf  ns  CV%", "rounds", \
        "goal", "met", "disturbed"
    for (i = 1; i <= names; i++) {
        name = order[i]
        estimate("lmbench", name); theirs = cv
        estimate("assay", name); ours = cv; count = n
        goal = theirs / 3 > 2 ? theirs / 3 : 2
        met = count < least ? "open" : ours <= goal ? "yes" : "no"
        number[met]++
        printf "%-28s %s %s %s %7d %5.1f%% %5s %6d of %d\n", name, figure("lmbench", name), figure("assay", name), \
            figure("perf", name), count, goal, met, disturbed[name], rounds["assay", name]
        if (none["lmbench", name]) lost = lost " " name " (" none["lmbench", name] ")"
    }
    printf "\n%d of %d goals met, %d open because fewer than %d rounds count. Bandwidths are in ns/B.\n", \
        number["yes"], names, number["open"], least
    if (lost != "") printf "Rounds in which lmbench printed no figure:%s\n", lost
}
