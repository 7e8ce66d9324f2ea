# What ddpt does with units $A and $B, 64 MiB of 512-byte blocks each, by POPULATE TOKEN and WRITE USING
# TOKEN. A step begins with `#:`. It works from 16 MiB (block 32768) of either unit on.
#
# ddpt 0.97 puts the ranges into its lists one byte early, over the low byte of their length: block
# and number arrive shifted, 256 times as large. Every number here is a multiple of 256, and is
# divided by SCALE, which the first step finds out, before ddpt gets it. Its transfer counts are
# what the unit says.

#: what it says of copies by token
generic() { echo /dev/$(ls /sys/block/${1##*/}/device/scsi_generic); }
FROM=$(generic $A)
says ddptctl --info $FROM -- 'num_blocks=131072 .*block_size=512' '3PC .*bit set' \
    'Block Device ROD Token Limits' 'Maximum Range Descriptors: [1-9]' \
    'Maximum Inactivity Timeout: [1-9]' ' Populate token' ' Write using token' \
    ' Receive ROD token information' ' Report all ROD tokens' 'ROD Type: point in time copy' \
    'ROD Type: block device zero'
ddptctl --pt=0,1 --rtf=/tmp/token $FROM >/tmp/scale
SCALE=$(sed -n 's/.*transfer count of \([0-9]*\) .*/\1/p' /tmp/scale)
[ "$SCALE" = 256 ] || [ "$SCALE" = 1 ] || { cat /tmp/scale; false; }
# list BLOCK NUMBER...: ranges as ddpt wants them. copies OPERAND...: what it says of its records, and
# how it ends, means nothing when more was moved than it asked for: what it did is looked at.
cat >>/rig/names <<'EOF'
list() {
    words=
    for number in "$@"; do words=$words,$((number / SCALE)); done
    echo ${words#,}
}
copies() {
    ddpt --odx "$@" bs=512 >/tmp/ddpt 2>&1 || true
    if grep -q 'Sense key' /tmp/ddpt; then cat /tmp/ddpt; return 1; fi
}
EOF
echo "FROM=$FROM TO=$(generic $B) SCALE=$SCALE" >>/rig/names
head -c 1048576 /dev/urandom >/tmp/noise
dd if=/tmp/noise of=$A bs=1M seek=16 conv=fsync 2>/dev/null
dd if=/tmp/noise of=$B bs=1M seek=24 conv=fsync 2>/dev/null
told noise

#: copies by token
copies if=$FROM of=$TO skip=$(list 32768 2048) seek=$(list 34816 2048)
copies if=$FROM of=$FROM skip=$(list 32768 2048) seek=$(list 36864 2048)
# Behind the command.
copies if=$FROM iflag=immed of=$TO oflag=immed skip=$(list 32768 2048) seek=$(list 38912 2048)
# By a file of tokens, and with the other way to ask how it went.
copies if=$FROM rtf=/tmp/tokens skip=$(list 32768 2048)
[ $(wc -c </tmp/tokens) = 512 ]
copies rtf=/tmp/tokens of=$TO oflag=prefer_rcs seek=$(list 40960 2048)
told by token

#: copies in two halves, by lists of ranges
says ddptctl --pt=$(list 32768 256 34304 256 33024 512) --rtf=/tmp/token $FROM -- \
    'transfer count of 1024 '
[ $(wc -c </tmp/token) = 512 ]
says ddptctl --info --rtf=/tmp/token -- 'point in time copy' \
    'designator type: NAA' 'bytes represented: 524288 ' 'block size: 512 ' \
    'iqn.2026-11.test.ashlar:house$'
says ddptctl --rtf=/tmp/token --wut=$(list 43008 768 44032 256) $TO -- 'transfer count of 1024 '
(dd if=/tmp/noise bs=128k count=1; dd if=/tmp/noise bs=128k skip=6 count=1
    dd if=/tmp/noise bs=128k skip=1 count=2) 2>/dev/null >/tmp/gathered
(dd if=$B bs=128k skip=168 count=3 iflag=direct; dd if=$B bs=128k skip=172 count=1 iflag=direct) \
    2>/dev/null | cmp - /tmp/gathered
# A part of it, from the tenth block on.
says ddptctl --rtf=/tmp/token --oir=10 --wut=$(list 45056 512) $TO -- 'transfer count of 512 '
tail -c +5121 /tmp/gathered | head -c 262144 >/tmp/part
dd if=$B bs=128k skip=176 count=2 iflag=direct 2>/dev/null | cmp - /tmp/part
says ddptctl --all_toks $FROM -- '[Tt]oken'

#: tokens that are not good write nothing
# 110 and the qualifier of INVALID TOKEN OPERATION: 1 of no known type, 4 unknown, 5 corrupt,
# 6 revoked, 9 deleted.
wut() { ddptctl --rtf=$1 --wut=$(list $2 $3) $TO; }
bend() { tr '\000-\377' '\001-\377\000'; }
(head -c 300 /tmp/token; tail -c +301 /tmp/token | bend) >/tmp/bent
ends 115 wut /tmp/bent 49152 1024
(head -c 8 /tmp/token; tail -c +9 /tmp/token | head -c 8 | bend; tail -c +17 /tmp/token) >/tmp/noones
ends 114 wut /tmp/noones 49152 1024
bend </tmp/token >/tmp/other
ends 111 wut /tmp/other 49152 1024
# Beyond what it stands for, and beyond the unit.
ends 101 wut /tmp/token 49152 1280
ends 22 wut /tmp/token 130816 512
# What it stands for has changed; one that is deleted is no more.
dd if=/tmp/noise of=$A bs=512 seek=33100 count=1 conv=fsync 2>/dev/null
ends 116 wut /tmp/token 49152 1024
says ddptctl --pt=$(list 32768 256) --rtf=/tmp/token $FROM -- 'transfer count of 256 '
says ddptctl --rtf=/tmp/token --del_tkn --wut=$(list 43008 256) $TO -- 'transfer count of 256 '
ends 119 wut /tmp/token 49152 256
told nothing by token

#: zeros by token
copies if=/dev/null rtype=zero of=$TO seek=$(list 49408 1024)
told zeros by token
