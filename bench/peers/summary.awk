# The table of `repeatability`, from lines `round|program|test|figure|step`: the figure in ns or ns/B, and the step in
# which the program prints it.
#
# For each test: mean and coefficient of variation (CV) of each program over the same rounds, and the ratio of assay's CV
# to that of each placement of lmbench. A round in which a program has no figure is left out for all of them and
# reported. Where the CV of lmbench is no larger than rounding makes it (a step over the root of 12), there is no ratio.
# Intervals are bootstraps over blocks of rounds, because neighbouring rounds are correlated; each draw takes the same
# rounds for all tests.

BEGIN {
    FS = "|"
    draws = 400; block = 3
    programs = split("lmbench bound assay", program, " ")
    ours = programs
}

{
    if (!($3 in known)) { known[$3] = 1; order[++tests] = $3 }
    if ($4 + 0 > 0) { figure[$2, $3, $1] = $4; step[$2, $3] = $5 }
    # assay is the last one in a round: interrupted rounds are ignored.
    if ($2 == "assay" && $1 > rounds) rounds = $1
}

function is_whole(test, round,   p) {
    for (p = 1; p <= programs; p++) if (!((program[p], test, round) in figure)) return 0
    return 1
}

# The CV of a program in per cent over the rounds drawn, each as often as `times` says, or -1 if they are fewer than two;
# sets `mean`.
function variation(name, test,   round, n, sum, squares) {
    n = sum = squares = 0
    for (round in times) if (!((test, round) in left_out)) {
        n += times[round]; sum += times[round] * figure[name, test, round]
    }
    if (n < 2) return -1
    mean = sum / n
    for (round in times) if (!((test, round) in left_out)) {
        squares += times[round] * (figure[name, test, round] - mean) ^ 2
    }
    return 100 * sqrt(squares / (n - 1)) / mean
}

# Sets `ratio[p, i, draw]`, assay's CV over that of program p in test i, and `ratio[p, "median", draw]` over all tests.
function compare(draw,   i, p, theirs, of_ours, n, sorted) {
    for (p = 1; p < ours; p++) {
        n = 0
        for (i = 1; i <= tests; i++) {
            of_ours = variation(program[ours], order[i]); theirs = variation(program[p], order[i])
            if (theirs > rounding[p, i]) sorted[++n] = ratio[p, i, draw] = of_ours / theirs
        }
        sort(sorted, n)
        if (n) ratio[p, "median", draw] = quantile(sorted, n, 0.5)
    }
}

# A ratio as it was measured, with an interval of 95 %. Drawn blocks vary less than rounds do, by their number.
function with_interval(p, key,   draw, n, log_ratio, sum, squares, blocks, half) {
    if (!((p, key, 0) in ratio)) return "-"
    blocks = int(rounds / block)
    for (draw = 1; draw <= draws; draw++) if (ratio[p, key, draw] > 0) {
        log_ratio = log(ratio[p, key, draw])
        n++; sum += log_ratio; squares += log_ratio ^ 2
    }
    if (blocks < 2 || n < draws / 2) return sprintf("%.2f", ratio[p, key, 0])
    squares = (squares - sum ^ 2 / n) / (n - 1)
    half = 2.1 * sqrt((squares > 0 ? squares : 0) * blocks / (blocks - 1))
    return sprintf("%.2f (%.2f-%.2f)", ratio[p, key, 0], ratio[p, key, 0] * exp(-half), ratio[p, key, 0] * exp(half))
}

# Mean and CV of a program; sets `rounding[p, i]`, the CV that rounding makes, in per cent.
function columns(p, i,   cv) {
    cv = variation(program[p], order[i])
    if (cv < 0) return sprintf("%16s", "-")
    rounding[p, i] = 100 * step[program[p], order[i]] / sqrt(12) / mean
    if (cv < rounding[p, i]) return sprintf("%10.4g %5s", mean, sprintf("<%.1f", rounding[p, i]))
    return sprintf("%10.4g %5.1f", mean, cv)
}

END {
    for (round = 1; round <= rounds; round++) {
        times[round] = 1
        for (i = 1; i <= tests; i++) if (!is_whole(order[i], round)) left_out[order[i], round] = 1
    }
    for (i = 1; i <= tests; i++) for (p = 1; p <= programs; p++) row[i] = row[i] " " columns(p, i)
    compare(0)

    srand(1)
    for (draw = 1; draw <= draws; draw++) {
        delete times
        for (drawn = 0; drawn + block <= rounds; drawn += block) {
            first = int(rounds * rand())
            for (round = first; round < first + block; round++) times[round % rounds + 1]++
        }
        compare(draw)
    }

    printf "%-27s %16s %16s %16s %17s %17s\n", "mean in ns or ns/B, CV in %", "lmbench", "lmbench bound", "assay", \
        "assay/lmbench", "assay/bound"
    for (i = 1; i <= tests; i++) {
        printf "%-27s%s", order[i], row[i]
        for (p = 1; p < ours; p++) {
            printf " %17s", with_interval(p, i)
            if ((p, i, 0) in ratio) { compared[p]++; worse[p] += ratio[p, i, 0] > 1 }
        }
        print ""
    }
    printf "\nMedian ratio of CVs over %d rounds, with an interval of 95 %%:\n", rounds
    for (p = 1; p < ours; p++) {
        printf "    assay/%-8s %s; above 1 in %d of %d tests\n", program[p], with_interval(p, "median"), worse[p], \
            compared[p]
    }
    for (i = 1; i <= tests; i++) for (p = 1; p <= programs; p++) {
        missing = 0
        for (round = 1; round <= rounds; round++) missing += !((program[p], order[i], round) in figure)
        if (missing) {
            printf "%s: no figure of %s in %d of %d rounds, which are left out for all programs.\n", order[i], \
                program[p], missing, rounds
        }
    }
    if (compared[1] + compared[2] == 0) {
        print "No comparison: no test has two rounds with figures of every program that differ by more than rounding."
        exit 1
    }
}
