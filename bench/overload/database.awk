# The table of `database`, from lines `repeat front clients committed failed mean p50 p99 load in-time not-begun`, of
# which rates are per second and times in us. Ratios are of runs in the same repeat: to the rate without a front with
# the number of clients that has the highest median (`peak`), and to that with as many clients. `load` is the processor
# time of the load for a transaction. The rows are in the order of lines `front clients`, in the environment variable
# `runs`. The case `paper` has a plot, too. Exits with 1 if a run went wrong.

BEGIN { rows = split(ENVIRON["runs"], order, "\n") }

# Of the difference from the time without a front.
function added(row, column,   repeat, n) {
    for (repeat = 1; repeat <= repeats; repeat++)
        if (((row, repeat, column) in cell) && (("direct 1", repeat, column) in cell))
            values[++n] = cell[row, repeat, column] - cell["direct 1", repeat, column]
    return summary(values, n, 1)
}

# Of the transactions that were committed too late.
function late(row,   repeat, n) {
    for (repeat = 1; repeat <= repeats; repeat++)
        if ((row, repeat, 4) in cell) values[++n] = cell[row, repeat, 4] - cell[row, repeat, 10]
    return summary(values, n, 0)
}

# Plots the shares of the peak, as in the table: a bar for each front and number of clients, four lines high and cut at
# the peak.
function plot(peak,   i, j, line, level, eighths, fronts, numbers, name, number, seen, shares, labels, of_peak,
    median_share, block) {
    split("▁ ▂ ▃ ▄ ▅ ▆ ▇ █", block, " ")
    block[0] = " "
    for (i = 1; i <= rows; i++) {
        if (!seen[front[order[i]]]++) name[++fronts] = front[order[i]]
        if (!seen["of", clients[order[i]]]++) number[++numbers] = clients[order[i]]
    }
    print "\n```text"
    for (i = 1; i <= fronts; i++) {
        shares = labels = sprintf("%-14s", "")
        for (j = 1; j <= numbers; j++) {
            split(share(name[i] " " number[j], 4, peak, 4), of_peak, " ")
            median_share[j] = of_peak[1]
            shares = shares sprintf("  %4s", of_peak[1])
            labels = labels sprintf("  %4d", number[j])
        }
        for (level = 3; level >= 0; level--) {
            line = sprintf("%-14s", level == 3 ? name[i] : "")
            for (j = 1; j <= numbers; j++) {
                eighths = int(32 * median_share[j] + 0.5) - 8 * level
                eighths = eighths < 0 ? 0 : eighths > 8 ? 8 : eighths
                line = line "  " block[eighths] block[eighths] block[eighths] block[eighths]
            }
            sub(/ +$/, "", line)
            print line
        }
        print shares "\n"
    }
    sub(/^       /, "clients", labels)
    print labels "\n```"
}

END {
    for (i = 1; i <= rows; i++) {
        split(order[i], part, " ")
        front[order[i]] = part[1]
        clients[order[i]] = part[2]
        if (part[1] == "direct" && (!peak || median(order[i], 4) > median(peak, 4))) peak = order[i]
    }
    if (table == "latency") {
        print "| | p50 (us) | mean (us) | added to p50 (us) | added to mean (us) |"
        print "|---|---|---|---|---|"
        for (i = 1; i <= rows; i++) {
            row = order[i]
            printf "| %s | %s | %s", front[row], absolute(row, 7, 1, 1), absolute(row, 6, 1, 1)
            if (front[row] == "direct") print " | | |"
            else printf " | %s | %s |\n", added(row, 7), added(row, 6)
        }
        exit failed
    }
    if (table == "deadline") {
        print "| | in time per second | of the rate of four clients | late per second | failed per second " \
            "| not begun per second | p50 (ms) | p99 (ms) |"
        print "|---|---|---|---|---|---|---|---|"
        for (i = 1; i <= rows; i++) {
            row = order[i]
            printf "| %s, %d clients | %s", front[row], clients[row], absolute(row, 10, 1, 0)
            printf " | %s | %s | %s | %s", share(row, 10, "direct 4", 4), late(row), absolute(row, 5, 1, 0), absolute(row, 11, 1, 0)
            printf " | %s | %s |\n", absolute(row, 7, 1000, 1), absolute(row, 8, 1000, 1)
        }
        exit failed
    }
    print "| | clients | committed per second | of the peak | of that without a front | failed per second " \
        "| p99 (ms) | load (us) |"
    print "|---|--:|---|---|---|---|---|---|"
    for (i = 1; i <= rows; i++) {
        row = order[i]
        printf "| %s | %d | %s | %s", front[row], clients[row], absolute(row, 4, 1, 0), share(row, 4, peak, 4)
        printf " | %s", front[row] == "direct" ? "" : share(row, 4, "direct " clients[row], 4)
        printf " | %s | %s | %s |\n", absolute(row, 5, 1, 1), absolute(row, 8, 1000, 1), absolute(row, 9, 1, 0)
    }
    if (table == "paper") plot(peak)
    exit failed
}
