# What programs ask of a kernel, a little of each: the command of `assay sim run` without another one. The
# first failure ends it.
set -e
# Processes, and pipes between them.
for number in $(seq 40); do
    echo "$number" | cat | (read -r line && [ "$line" = "$number" ])
done
# Small files: create, write, list, read, rename, link, delete.
mkdir tree
for number in $(seq 200); do
    echo "$number" >"tree/$number"
done
ls -l tree >list
cat tree/* | sort -rn | uniq -c >lines
for number in $(seq 20); do
    mv "tree/$number" "tree/moved$number"
    ln -s "moved$number" "tree/link$number"
    touch "tree/link$number"
done
find tree -type l | wc -l >count
tar cf archive tree
gzip archive
# A large file.
head -c 400000 /bin/busybox >large
dd if=large of=copy bs=512 2>records
cmp large copy
md5sum large >sum
rm -r tree copy
# Connections over loopback.
httpd -p 127.0.0.1:8080 -h .
for number in $(seq 20); do
    wget -q -O /dev/null http://127.0.0.1:8080/large
done
ping -c 3 -i 0.1 127.0.0.1 >answers
# Waiting.
for number in $(seq 5); do
    usleep 20000
done
