
# Names of running objects, which the daemon knows; files where it knows none.
_ashlar_live() {
    local -a typed names
    typed=(${(z)LBUFFER})
    [[ $LBUFFER == *[[:space:]] ]] || typed[-1]=()
    typed=(${(Q)typed[${typed[(I)(*/|)ashlar]}+1,-1]})
    names=(${(f)"$(command ashlar complete $typed 2>/dev/null)"})
    if (( $#names )); then
        compadd -a names
    else
        _default "$@"
    fi
}
