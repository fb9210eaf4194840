# The figure in the output of a program of lmbench and the step in which it is printed, `figure|step` in ns or ns/B, or
# nothing: lmbench prints no figure where a result came out as 0 or less.
#
# `field`: its place in the last line that has it, from the end, or the name in front of it; `unit`: `ns`, `us` or `MB/s`.

field ~ /[a-z]/ { if (index($0, field ":") == 1) text = $(NF - 1); next }
NF > field && $(NF - field) + 0 > 0 { text = $(NF - field) }

END {
    value = text + 0
    if (value <= 0) exit
    step = index(text, ".") ? 10 ^ (index(text, ".") - length(text)) : 1
    if (unit == "us") { value *= 1000; step *= 1000 }
    if (unit == "MB/s") { step *= 1000 / value ^ 2; value = 1000 / value }
    print value "|" step
}
